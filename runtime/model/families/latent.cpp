// Families with DeepSeek's latent attention: GLM 4.7 Flash (glm4_moe_lite) and A.X K1 with its experts, Youtu and
// MiniCPM 3 without. MiniCPM scales embeddings, what attention and MLP add, and logits.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"

#include "runtime/support/types.hpp"

#include <cmath>

namespace troupe::families {

void read_glm4_moe_lite(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2, .default_norm_eps = 1e-5});
  read_latent_attention(config, model, {.q_rank = 768, .plain = 192, .value = 256, .positions = 202752});
  model.experts.scale = 1.8f;
  read_experts_of_groups(config, model, 64, 4, 1536, 1, 1);
  read_groups(config, model, 1, 1);
  read_corrected_router(config, model, true);
}

/// V3 with a norm of what a mixture gives.
void read_axk1(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2});
  require(config, "mlp_bias", false);
  read_latent_attention(config, model, {.positions = 32768});
  model.mixture_norm = true;
  model.experts.scale = 2.5f;
  read_experts_of_groups(config, model, 192, 8, 2048, 1, 1);
  read_groups(config, model, 8, 4);
  read_corrected_router(config, model, true);
}

void read_youtu(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2, .tied = true});
  read_latent_attention(config, model, {.positions = 131072});
}

void read_minicpm3(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2, .default_norm_eps = 1e-5, .tied = true});
  require(config, "mlp_bias", false);
  read_latent_attention(config, model,
                        {.q_rank = 768,
                         .kv_rank = 256,
                         .plain = 64,
                         .rotated = 32,
                         .value = model.hidden / model.heads,
                         .positions = 32768});
  model.rope.interleaved = false; // unlike DeepSeek's
  const auto scale = [&](const char* key, double fallback, double none) {
    return config.contains(key) && !config.has(key) ? none : config.number(key, 1e-6, 1e9).value_or(fallback);
  };
  const double depth = std::sqrt(model.layers);
  model.embedding_scale = static_cast<float>(scale("scale_emb", 12, 12));
  model.residual_scale = static_cast<float>(scale("scale_depth", 1.4, depth) / depth);
  model.logit_scale = static_cast<float>(scale("dim_model_base", 256, model.hidden) / model.hidden);
}

/// Their attention; experts and a shared one, if there are any.
void arrange_latent(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_latent_attention(model, to);
  arrange_shared_experts(model, stored, to);
}

/// Published files have a norm in dense layers, too, which nothing reads, and no corrections, which are 0 then.
void arrange_axk1(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_deepseek(model, stored, to);
  tensor_arranger tensors(model, to);
  row_order first_column; // of the router
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto norm = tensors.stored(layer, "post_mlp_layernorm.weight");
    if (!model.is_sparse(layer)) {
      to.names[norm] = "unread." + norm;
      continue;
    }
    const auto inner = tensors.stored(layer, "mlp.post_mlp_layernorm.weight");
    tensors.add(layer, "post_feedforward_layernorm.weight", {.name = stored.find(inner) ? inner : norm});
    const std::string correction = "mlp.gate.e_score_correction_bias", router = "mlp.gate.weight";
    if (stored.find(tensors.stored(layer, correction)))
      continue;
    if (!first_column)
      first_column = tensors.rows(0, as_size(model.experts.count), as_size(model.hidden));
    const auto from = tensors.stored(layer, router);
    tensors.add(layer, router, {.name = from});
    tensors.add(layer, correction, {.name = from, .as_vector = true, .rows = first_column, .factor = 0});
  }
}

const family axk1_family{"axk1", read_axk1, arrange_axk1};
const family glm4_moe_lite_family{"glm4_moe_lite", read_glm4_moe_lite, arrange_latent, {{"deepseek2", only_written}}};
const family minicpm3_family{"minicpm3", read_minicpm3, arrange_latent};
const family youtu_family{"youtu", read_youtu, arrange_latent};

} // namespace troupe::families
