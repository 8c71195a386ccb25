// Qwen 2 (biases of q, k and v), Qwen 3 (q/k norm), and their mixtures of experts.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

void read_qwen2(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.default_kv_heads = 32});
  model.qkv_bias = true;
  read_late_windows(config, model, 4096);
  read_positions(config, model, {.default_context = 32768});
}

void read_qwen3(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.default_kv_heads = 32, .default_head_dim = 128});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  read_late_windows(config, model, 4096);
  read_positions(config, model, {.default_context = 32768});
}

namespace {

void read_experts(const reader& config, model_config& model, int default_ffn, int default_count, int default_chosen) {
  read_expert_counts(config, model, {"num_experts", "num_local_experts"}, default_count, default_chosen);
  read_sparse_layers(config, model);
  model.experts.ffn = config.integer("moe_intermediate_size", 1, config_limits::max_ffn, default_ffn);
  model.experts.renormalise = config.boolean("norm_topk_prob", false);
}

} // namespace

void read_qwen2_moe(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 16});
  model.qkv_bias = config.boolean("qkv_bias", true);
  require(config, "use_sliding_window", false);
  read_positions(config, model, {.default_context = 32768});
  read_experts(config, model, 1408, 60, 4);
  model.experts.shared_ffn = config.integer("shared_expert_intermediate_size", 1, config_limits::max_ffn, 5632);
  model.experts.shared_gate = true;
}

void read_qwen3_moe(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 4});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  if (config.boolean("use_sliding_window", false))
    read_one_window(config, model, 4096);
  read_positions(config, model, {.default_context = 32768});
  read_experts(config, model, 768, 128, 8);
}

/// The text of Qwen3-VL keeps a layer's experts together: gate and up as [experts, hidden, 2 ffn], down as [experts,
/// ffn, hidden], or each transposed.
void arrange_qwen3_moe(const model_config& model, const checkpoint& stored, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto* const gate_up = stored.find(tensors.stored(layer, "mlp.experts.gate_up_proj"));
    const auto* const down = stored.find(tensors.stored(layer, "mlp.experts.down_proj"));
    if (!gate_up || !down)
      continue;
    const auto transposed = (gate_up->shape.size() == 3 && gate_up->shape[1] != 2 * as_size(model.experts.ffn)) ||
      (down->shape.size() == 3 && down->shape[1] != as_size(model.hidden));
    tensors.split_experts(layer, "mlp.experts.gate_up_proj", "mlp.experts.down_proj", transposed);
  }
}

namespace {

void describe_qwen2_moe(const architecture_keys& keys, model_config& model) {
  const auto* shared = keys.tensor("blk.0.ffn_up_shexp.weight");
  model.experts.shared_ffn = keys.integer("expert_shared_feed_forward_length", 1, config_limits::max_ffn)
                               .value_or(shared ? static_cast<int>(shared->info.shape[0]) : model.ffn);
  model.experts.shared_gate = true;
}

} // namespace

const family qwen2_family{"qwen2", read_qwen2, nullptr, {{"qwen2"}, {"qwen2vl"}}};
const family qwen3_family{"qwen3", read_qwen3, nullptr, {{"qwen3"}, {"qwen3vl"}}, normed_heads | ranks_by_answer};
const family qwen2_moe_family{"qwen2_moe", read_qwen2_moe, nullptr, {{"qwen2moe", experts, describe_qwen2_moe}}};
const family qwen3_moe_family{"qwen3_moe",
                              read_qwen3_moe,
                              arrange_qwen3_moe,
                              {{"qwen3moe", experts}, {"qwen3vlmoe", experts}},
                              normed_heads | renormalises};

} // namespace troupe::families
