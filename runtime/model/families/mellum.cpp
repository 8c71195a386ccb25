// Mellum: Qwen 3's mixture, with windows and rotations by layer.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

void read_mellum(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 4, .default_head_dim = 128});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  if (config.has("layer_types"))
    read_alternating_windows(config, model, 1024, 1);
  read_layer_positions(config, model, {.default_context = 131072, .theta = 500000}, 10000);
  read_expert_counts(config, model, {"num_local_experts", "num_experts"}, 64, 8);
  if (const auto types = read_mlp_types(config, model.layers))
    model.sparse = *types;
  model.experts.ffn = config.integer("moe_intermediate_size", 1, config_limits::max_ffn, 896);
  model.experts.renormalise = config.boolean("norm_topk_prob", true);
}

const family mellum_family{"mellum", read_mellum, nullptr, {}, normed_heads};

} // namespace troupe::families
