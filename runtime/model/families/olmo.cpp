// OLMo 2 and 3: norms only of what attention and MLP give, and of whole q and k; OLMo 3 alternates windows.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

namespace troupe::families {

namespace {

void read_common(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_norm_eps = 1e-5});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.norms = norm_place::after;
  model.qk_norm = model.qk_norm_whole = true;
}

} // namespace

void read_olmo2(const reader& config, model_config& model) {
  read_common(config, model);
  read_positions(config, model);
}

void read_olmo3(const reader& config, model_config& model) {
  read_common(config, model);
  read_alternating_windows(config, model, 4096, 4);
  read_layer_positions(config, model, {.theta = 500000}, config.number("rope_theta", 1.000001, 1e30).value_or(500000));
}

} // namespace troupe::families
