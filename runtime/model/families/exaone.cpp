// EXAONE 4 and its mixture of experts: q/k norm; where windows alternate, only layers that have one rotate. Norms are
// those of what attention and MLP give, in the mixture of what they read.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"

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

void read_exaone4(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 32, .default_norm_eps = 1e-5});
  read_positions(config, model);
  const int period = period_of(config);
  if ((config.contains("sliding_window") && !config.has("sliding_window")) || period == 0)
    return; // null: no windows, and all layers rotate
  read_alternating_windows(config, model, 4096, period);
  for (const int window : model.windows)
    model.unrotated.push_back(window == 0);
}

} // namespace

/// Its norms stand ahead of attention and MLP, and its experts are DeepSeek V3's.
void read_exaone_moe(const reader& config, model_config& model) {
  read_exaone4(config, model);
  model.experts.scale = 2.5f;
  read_experts_of_groups(config, model, 64, 8, 1024, 1, 1, {.shared = "num_shared_experts"});
  read_groups(config, model, 1, 1);
  read_corrected_router(config, model, true);
}

void arrange_exaone_moe(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_shared_experts(model, stored, to);
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer)
    if (const auto name = tensors.stored(layer, "mlp.e_score_correction_bias");
        model.is_sparse(layer) && stored.find(name))
      tensors.add(layer, "mlp.gate.e_score_correction_bias", {.name = name});
}

namespace {

void describe_exaone4(const architecture_keys& keys, model_config& model) {
  if (model.windows.front() == 0)
    return;
  slide(keys, model, model.windows.front(), 4, true);
  for (const int window : model.windows)
    model.unrotated.push_back(window == 0);
}

} // namespace

const family exaone4_family{
  "exaone4", read_exaone4, nullptr, {{"exaone4", 0, describe_exaone4}}, norms_after | normed_heads};
const family exaone_moe_family{"exaone_moe", read_exaone_moe, arrange_exaone_moe, {}, normed_heads};

} // namespace troupe::families
