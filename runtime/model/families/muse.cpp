// Muse Glimmer's text: embeddings normed without weights, norms of q and k without weights and larger scores, a gate on
// what heads give, norms ahead of and behind attention and MLP, rotation in some layers, scaled and capped logits.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include <cmath>

namespace troupe::families {

void read_muse_glimmer(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_activation", "silu");
  read_sizes(config, model, {.default_kv_heads = 2, .default_head_dim = 128, .default_norm_eps = 1e-5});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.after_eps = static_cast<float>(config.number("post_norm_eps", 1e-12, 1).value_or(1e-8));
  model.embedding_norm = model.embedding_norm_plain = true;
  model.qk_norm = model.qk_norm_plain = model.attention_gate = true;
  model.attention_scale = static_cast<float>(config.number("qk_scale_factor", 1e-6, 1e6).value_or(3.87) /
                                             std::sqrt(double(model.head_dim)));
  model.logit_scale = static_cast<float>(config.number("output_multiplier", 1e-9, 1e9).value_or(0.19611613513818404));
  model.logit_cap = static_cast<float>(config.number("final_logit_softcapping", 1e-3, 1e9).value_or(20));
  read_positions(config, model, {.default_context = 131072});
  constexpr int period = 4; // counted from the last layer
  read_alternating_windows(config, model, 2048, period, period - model.layers % period);
  if (!read_layer_thetas(config, model))
    for (int i = 0; i < model.layers; ++i)
      model.unrotated.push_back((model.layers - 1 - i) % period == 0);
}

void arrange_muse_glimmer(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer)
    tensors.rename(layer, "self_attn.attn_gate", "self_attn.gate_proj");
  tensors.shift_norms(1);
  to.tensors["model.norm.weight"].offset = 0;
}

const family muse_glimmer_text_family{"muse_glimmer_text", read_muse_glimmer, arrange_muse_glimmer, {}, norms_both};

} // namespace troupe::families
