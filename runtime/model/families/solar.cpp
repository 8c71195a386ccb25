// Solar Open: a llama whose MLPs are mixtures of experts by a sigmoid with a correction, within groups, beside shared
// ones.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"

namespace troupe::families {

void read_solar_open(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.ffn = nullptr, .default_kv_heads = 8, .default_head_dim = 128, .default_norm_eps = 1e-5});
  require(config, "use_qk_norm", false);
  require_number(config, "first_k_dense_replace", 0);
  model.qkv_bias = config.boolean("attention_bias", false);
  read_positions(config, model, {.default_context = 131072, .theta = 1000000});
  read_experts_of_groups(config, model, 128, 8, 1280, 1, 0);
  read_groups(config, model, 1, 1);
  read_corrected_router(config, model, true);
  model.ffn = model.experts.ffn;
}

const family solar_open_family{"solar_open", read_solar_open, arrange_shared_experts};

} // namespace troupe::families
