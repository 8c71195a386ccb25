// OLMo 2 and 3: norms only of what attention and MLP give, and of whole q and k; OLMo 3 alternates windows. OLMoE: a
// mixture of experts.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

namespace troupe::families {

namespace {

void read_common(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_norm_eps = 1e-5});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
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

/// Norms ahead of attention and MLP, q, k and v cut to a magnitude, and experts whose weights keep their sum.
void read_olmoe(const reader& config, model_config& model) {
  read_common(config, model);
  model.qkv_clip = static_cast<float>(config.number("clip_qkv", 0, 1e9, true).value_or(0));
  read_positions(config, model, {.default_context = 4096});
  read_expert_counts(config, model, {"num_experts", "num_local_experts"}, 64, 8);
  model.sparse.assign(static_cast<std::size_t>(model.layers), true);
  model.experts.ffn = model.ffn;
  model.experts.renormalise = config.boolean("norm_topk_prob", false);
}

namespace {

/// OLMo 3 has windows, and scales only full attention.
void describe_olmo2(const architecture_keys& keys, model_config& model) {
  if (model.windows.front() == 0)
    return;
  model.family = "olmo3";
  slide(keys, model, model.windows.front(), 4, true);
  if (model.rope.type != rope_type::plain) {
    model.local_rope.emplace();
    model.local_rope->theta = model.rope.theta;
  }
}

} // namespace

const family olmo2_family{"olmo2", read_olmo2, nullptr, {{"olmo2", 0, describe_olmo2}}, norms_after | normed_whole};
const family olmoe_family{"olmoe", read_olmoe, arrange_qwen3_moe, {{"olmoe", experts}}, normed_whole};
const family olmo3_family{"olmo3", read_olmo3, nullptr, {{"olmo2", only_written}}, norms_after | normed_whole};

} // namespace troupe::families
