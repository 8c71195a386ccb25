// Gemma: norms that multiply by 1 + w, scaled embeddings, gated GELU; Gemma 2 and 3 also normalise what attention and
// MLP give, and alternate windows.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"

#include <cmath>

namespace troupe::families {

namespace {

void read_common(const reader& config, model_config& model, const size_rules& sizes) {
  read_sizes(config, model, sizes);
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.embedding_scale = std::sqrt(static_cast<float>(model.hidden));
}

void read_alternating(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_activation", "gelu_pytorch_tanh");
  read_common(config, model, {.default_kv_heads = 4, .default_head_dim = 256, .tied = true});
  const auto scalar = config.number("query_pre_attn_scalar", 1e-6, 1e9).value_or(256);
  model.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
}

float cap(const reader& config, const char* key, float fallback) {
  if (!config.contains(key))
    return fallback;
  return static_cast<float>(config.number(key, 1e-3, 1e9).value_or(0)); // null: none
}

} // namespace

void read_gemma(const reader& config, model_config& model) {
  // Older configurations say `gelu`, which transformers takes as the approximation by tanh.
  const auto* key = config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  read_activation(config, model, key, "gelu_pytorch_tanh");
  if (model.act.type == kernels::activation_type::gelu)
    model.act = {kernels::activation_type::gelu_tanh};
  read_common(config, model, {.default_kv_heads = 16, .default_head_dim = 256, .tied = true});
  require(config, "use_bidirectional_attention", false);
  read_positions(config, model, {.default_context = 8192});
}

void read_gemma2(const reader& config, model_config& model) {
  read_alternating(config, model);
  require(config, "use_bidirectional_attention", false);
  read_alternating_windows(config, model, 4096, 2);
  read_positions(config, model, {.default_context = 8192});
  model.attention_cap = cap(config, "attn_logit_softcapping", 50);
  model.logit_cap = cap(config, "final_logit_softcapping", 30);
}

void read_gemma3(const reader& config, model_config& model) {
  read_alternating(config, model);
  const int period = config.integer(config.has("sliding_window_pattern") ? "sliding_window_pattern"
                                                                         : "_sliding_window_pattern",
                                    1, config_limits::max_layers, 6);
  read_alternating_windows(config, model, 4096, period);
  model.attention_cap = cap(config, "attn_logit_softcapping", 0);
  model.logit_cap = cap(config, "final_logit_softcapping", 0);
  read_layer_positions(config, model, {.default_context = 131072, .theta = 1000000},
                       config.number("rope_local_base_freq", 1.000001, 1e30).value_or(10000));
  if (!config.boolean("use_bidirectional_attention", false))
    return;
  model.encoder = true; // EmbeddingGemma, whose windows are around a token
  for (int& window : model.windows)
    window = window > 0 ? window / 2 + 1 : 0;
}

void arrange_gemma(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger(model, to).shift_norms(1);
}

namespace {

/// Scores of the largest models are scaled by the width of heads that `hidden` would make.
void scale_scores(model_config& model, int layers_of_largest) {
  model.attention_scale = 1 /
    std::sqrt(model.layers == layers_of_largest ? static_cast<float>(model.hidden) / static_cast<float>(model.heads)
                                                : static_cast<float>(model.head_dim));
}

void describe_gemma2(const architecture_keys& keys, model_config& model) {
  slide(keys, model, model.windows.front(), 2, true);
  scale_scores(model, 46);
  model.attention_cap = number(keys, "attn_logit_softcapping", 50);
  model.logit_cap = number(keys, "final_logit_softcapping", 30);
}

void describe_gemma3(const architecture_keys& keys, model_config& model) {
  slide(keys, model, model.windows.front(), 6, true);
  scale_scores(model, 62);
  rotate_by_kind(keys, model);
  if (keys.number("final_logit_softcapping", 0, 1e9))
    model.logit_cap = number(keys, "final_logit_softcapping", 0);
}

/// EmbeddingGemma: every token sees the whole text, or half of a window on each side.
void describe_gemma_embedding(const architecture_keys& keys, model_config& model) {
  describe_gemma3(keys, model);
  for (int& window : model.windows)
    window = window > 0 ? window / 2 + 1 : 0;
  model.encoder = model.tied = true;
  model.attention_scale = 1 / std::sqrt(static_cast<float>(model.head_dim));
}

} // namespace

const family gemma_family{"gemma", read_gemma, arrange_gemma, {{"gemma", scaled_embedding | gelu_tanh}}};
const family gemma2_family{
  "gemma2", read_gemma2, arrange_gemma, {{"gemma2", scaled_embedding | gelu_tanh, describe_gemma2}}, norms_both};
const family gemma3_text_family{"gemma3_text",
                                read_gemma3,
                                arrange_gemma,
                                {{"gemma3", scaled_embedding | gelu_tanh, describe_gemma3},
                                 {"gemma-embedding", encodes | scaled_embedding | gelu_tanh, describe_gemma_embedding}},
                                norms_both | normed_heads};

} // namespace troupe::families
