// Cohere's Command R and its successors: layer norm without bias, parallel attention and MLP, rotation of neighbouring
// pairs, scaled logits; `cohere2` alternates windows and rotates only in layers that have one.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

namespace {

void read_common(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.norm_eps = "layer_norm_eps", .default_norm_eps = 1e-5, .tied = true});
  model.norm_bias = false;
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.logit_scale = static_cast<float>(config.number("logit_scale", 1e-9, 1e9).value_or(0.0625));
}

} // namespace

void read_cohere(const reader& config, model_config& model) {
  read_common(config, model);
  model.qk_norm = model.qk_norm_whole = model.qk_norm_layer = config.boolean("use_qk_norm", false);
  read_positions(config, model, {.default_context = 8192, .theta = 500000, .interleaved = true});
}

/// Command R+ has weights of norms for each head, [heads, head_dim].
void arrange_cohere(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; model.qk_norm && layer < model.layers; ++layer)
    for (const std::string name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
      tensors.add(layer, name, {.name = tensors.stored(layer, name), .as_vector = true});
}

void read_cohere2(const reader& config, model_config& model) {
  read_common(config, model);
  const int period = config.integer("sliding_window_pattern", 1, config_limits::max_layers, 4);
  read_alternating_windows(config, model, 4096, period);
  read_positions(config, model, {.default_context = 8192, .interleaved = true});
  for (const int window : model.windows)
    model.unrotated.push_back(window == 0);
}

/// Experts averaged with a shared one, behind dense layers with an MLP of another width.
void read_cohere2_moe(const reader& config, model_config& model) {
  read_cohere2(config, model);
  const int period = config.integer("sliding_window_pattern", 1, config_limits::max_layers, 4),
            window = read_window(config, 4096);
  if (config.has("rms_norm_eps")) {
    model.norm = norm_type::rms;
    model.norm_eps = static_cast<float>(config.number("rms_norm_eps", 1e-12, 1).value_or(1e-5));
  }
  auto& experts = model.experts;
  read_expert_counts(config, model, {"num_experts"}, 8, 2);
  experts.ffn = model.ffn;
  const int dense = config.integer("first_k_dense_replace", 0, config_limits::max_layers, 0);
  for (int i = 0; i < model.layers; ++i)
    model.sparse[as_size(i)] = i >= dense;
  if (const auto types = read_mlp_types(config, model.layers))
    model.sparse = *types;
  model.ffn = config.integer("prefix_dense_intermediate_size", 1, config_limits::max_ffn, model.ffn);
  const int prefix_period = config.integer("prefix_dense_sliding_window_pattern", 1, config_limits::max_layers, 1);
  if (!config.has("layer_types")) // dense layers and the others alternate windows by themselves
    for (int i = 0; i < model.layers; ++i) {
      const bool slides = i < dense ? (i + 1) % prefix_period != 0 : (i - dense + 1) % period != 0;
      model.windows[as_size(i)] = slides ? window : 0;
      model.unrotated[as_size(i)] = !slides;
    }
  for (int i = 0; i < model.layers; ++i)
    if (prefix_period == 1 && !model.is_sparse(i))
      model.unrotated[as_size(i)] = false;
  const auto how = config.string("expert_selection_fn").value_or("softmax");
  if (how != "softmax" && how != "sigmoid")
    throw failure(errc::unsupported,
                  config.label("expert_selection_fn") + " is `" + how + "`, supported are softmax and sigmoid");
  experts.scores = how == "softmax" ? router_scores::chosen : router_scores::sigmoid;
  experts.renormalise = how == "sigmoid" && config.boolean("norm_topk_prob", true);
  const auto shared = config.integer("num_shared_experts", 0, config_limits::max_experts, 0);
  if (std::int64_t{shared} * experts.ffn > config_limits::max_ffn)
    throw failure(errc::unsupported,
                  config.label("num_shared_experts") + " is " + std::to_string(shared) +
                    ", which times `intermediate_size` is more than the supported " +
                    std::to_string(config_limits::max_ffn));
  experts.shared_ffn = shared * experts.ffn;
  const auto together = config.string("shared_expert_combination_strategy").value_or("average");
  if (together != "sum" && together != "average")
    throw failure(errc::unsupported,
                  config.label("shared_expert_combination_strategy") + " is `" + together +
                    "`, supported are sum and average");
  if (shared > 0 && together == "average")
    experts.scale = 0.5f; // and so much of the shared one
}

void arrange_cohere2_moe(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_shared_experts(model, stored, to);
  tensor_arranger tensors(model, to);
  for (int layer = 0; model.experts.shared_ffn > 0 && model.experts.scale != 1 && layer < model.layers; ++layer)
    if (model.is_sparse(layer))
      tensors.add(
        layer, "mlp.shared_expert.down_proj.weight",
        {.name = tensors.stored(layer, "mlp.shared_experts.down_proj.weight"), .factor = model.experts.scale});
}

namespace {

void describe_cohere(const architecture_keys& keys, model_config& model) {
  model.logit_scale = number(keys, "logit_scale", 1);
  model.qk_norm_whole = model.qk_norm_layer = model.qk_norm;
}

void describe_cohere2(const architecture_keys& keys, model_config& model) {
  describe_cohere(keys, model);
  slide(keys, model, model.windows.front(), 4, true);
  for (const int window : model.windows)
    model.unrotated.push_back(window == 0);
}

} // namespace

const family cohere_family{"cohere",
                           read_cohere,
                           arrange_cohere,
                           {{"command-r", pairs | may_norm_heads, describe_cohere}},
                           layer_norm | shared_norm | paired_heads};
const family cohere2_family{"cohere2",
                            read_cohere2,
                            nullptr,
                            {{"cohere2", pairs | may_norm_heads, describe_cohere2}},
                            layer_norm | shared_norm | paired_heads};
const family cohere2_moe_family{
  "cohere2_moe", read_cohere2_moe, arrange_cohere2_moe, {}, layer_norm | shared_norm | paired_heads};

} // namespace troupe::families
