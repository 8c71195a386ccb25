// EXAONE 4: norms only of what attention and MLP give, q/k norm; where windows alternate, only layers that have one
// rotate.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"

#include <algorithm>

namespace troupe::families {

namespace {

/// A number, or letters for a period of layers, "LLLG".
int period_of(const reader& config) {
  constexpr const char* key = "sliding_window_pattern";
  const auto given = config.child(key);
  if (given && given->get().is_string())
    return static_cast<int>(std::min<std::size_t>(given->string().size(), config_limits::max_layers));
  return config.integer(key, 0, config_limits::max_layers, 4);
}

} // namespace

void read_exaone4(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 32, .default_norm_eps = 1e-5});
  model.norms = norm_place::after;
  model.qk_norm = true;
  read_positions(config, model);
  const int period = period_of(config);
  if ((config.contains("sliding_window") && !config.has("sliding_window")) || period == 0)
    return; // null: no windows, and all layers rotate
  read_alternating_windows(config, model, 4096, period);
  for (const int window : model.windows)
    model.unrotated.push_back(window == 0);
}

} // namespace troupe::families
