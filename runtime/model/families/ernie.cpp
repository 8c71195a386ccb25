// ERNIE 4.5: a llama that rotates neighbouring pairs, and its mixture of experts.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

using namespace config_limits;

void read_ernie4_5(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 2, .default_head_dim = 128, .default_norm_eps = 1e-5, .tied = true});
  model.qkv_bias = model.o_bias = model.mlp_bias = config.boolean("use_bias", false);
  read_positions(config, model, {.default_context = 131072, .theta = 500000, .interleaved = true});
}

void read_ernie4_5_moe(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 4, .default_norm_eps = 1e-5, .tied = true});
  require(config, "use_bias", false);
  read_positions(config, model, {.default_context = 131072, .theta = 500000, .interleaved = true});
  read_expert_counts(config, model, {"moe_num_experts", "num_experts"}, 64, 6);
  auto& experts = model.experts;
  experts.chosen = config.integer("moe_k", 1, experts.count, experts.chosen);
  experts.ffn = config.integer("moe_intermediate_size", 1, max_ffn, 1536);
  const int shared = config.integer("moe_num_shared_experts", 0, max_experts, 2);
  if (std::int64_t{shared} * experts.ffn > max_ffn)
    throw failure(errc::unsupported,
                  config.label("moe_num_shared_experts") + " is " + std::to_string(shared) +
                    ", which times `moe_intermediate_size` is more than the supported " + std::to_string(max_ffn));
  experts.shared_ffn = shared * experts.ffn;
  experts.correction = experts.renormalise = true;
  require_word(config, "moe_gate_act", {"softmax"});
  require(config, "moe_norm_gate_logits", true);
  const int first = config.integer("moe_layer_start_index", 0, max_layers, 1);
  const int last = config.integer("moe_layer_end_index", -1, max_layers, -1);
  const int interval = config.integer("moe_layer_interval", 1, max_layers, 1);
  for (int i = 0; i < model.layers; ++i)
    model.sparse[as_size(i)] = (i + 1) % interval == 0 && i >= first && (last < 0 || i <= last);
}

void arrange_ernie4_5_moe(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    if (!model.is_sparse(layer))
      continue;
    tensors.add(layer, "mlp.gate.e_score_correction_bias",
                {.name = tensors.stored(layer, "mlp.moe_statics.e_score_correction_bias"), .slices = 1});
    tensors.rename_shared_experts(layer);
  }
}

const family ernie4_5_family{"ernie4_5", read_ernie4_5, nullptr, {{"ernie4_5", pairs}}, paired_heads};
const family ernie4_5_moe_family{"ernie4_5_moe",
                                 read_ernie4_5_moe,
                                 arrange_ernie4_5_moe,
                                 {{"ernie4_5-moe", pairs | says_interval | routed}},
                                 paired_heads};

} // namespace troupe::families
