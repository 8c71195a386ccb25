// Cohere's Command R and its successors: layer norm without bias, parallel attention and MLP, rotation of neighbouring
// pairs, scaled logits; `cohere2` alternates windows and rotates only in layers that have one.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"

namespace troupe::families {

namespace {

void read_common(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.norm_eps = "layer_norm_eps", .default_norm_eps = 1e-5, .tied = true});
  model.norm = norm_type::layer;
  model.parallel = model.shared_norm = true;
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

} // namespace troupe::families
