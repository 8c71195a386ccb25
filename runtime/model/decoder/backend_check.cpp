#include "runtime/model/decoder/backend_check.hpp"

#include "kernels/compressed_attention.hpp"
#include "kernels/distance_attention.hpp"
#include "kernels/gaussian_gates.hpp"
#include "kernels/gram_ops.hpp"
#include "kernels/low_rank.hpp"
#include "kernels/recurrent.hpp"
#include "kernels/sparse_attention.hpp"
#include "runtime/support/error.hpp"

namespace troupe {

namespace {

/// Whether the model needs more of a backend than the ops that all have (ops.hpp: "ops of further families").
bool needs_family_ops(const model_config& config) {
  return config.norm != norm_type::rms || config.norms != norm_place::before || config.qk_norm_whole ||
    config.positions != position_type::rotary || config.attention_cap != 0 || config.attention_sinks || !config.gated ||
    config.latent || config.act.type != kernels::activation_type::silu || config.embedding_scale != 1 ||
    config.residual_scale != 1 || config.logit_scale != 1 || config.logit_cap != 0 || config.experts.count > 0 ||
    !config.chunks.empty() || config.growth || config.encoder || config.qk_norm_behind || config.qk_norm_plain ||
    config.value_norm || config.local_head_dim > 0 || config.local_kv_heads > 0 || config.full_kv_heads > 0 ||
    !config.kv_layers.empty() || config.head_growth || config.layer_inputs > 0 || config.layer_scales ||
    config.embedding_norm || config.token_types > 0 || config.skips_first_norm || config.recurrent ||
    config.attention_gate || config.altup || config.hyper || config.compressed || config.qkv_clip > 0 ||
    config.value_dim > 0 || !config.mlp_limits.empty() || config.window_sinks || config.shared_blocks;
}

} // namespace

void check_backend(const model_config& config, const kernels::backend& backend) {
  const auto refuse = [&](const std::string& needs) {
    throw failure(errc::unsupported,
                  "models of the family `" + config.family + "` need " + needs + "; this is " + backend.description());
  };
  const bool has_grams = dynamic_cast<const kernels::gram_ops*>(&backend) != nullptr;
  if ((config.distances && dynamic_cast<const kernels::distance_attention*>(&backend) == nullptr) ||
      (config.recurrent.type == recurrent_type::branches && !has_grams))
    refuse("learned numbers for distances and short convolutions beside attention, which CPUs and NVIDIA "
           "GPUs compute");
  const bool has_recurrence = dynamic_cast<const kernels::recurrent_ops*>(&backend) != nullptr;
  if (config.recurrent && !has_recurrence)
    refuse("recurrent layers, which CPUs and NVIDIA GPUs compute");
  if (config.hyper.rank > 0 && !has_recurrence)
    refuse("weights of each element of residual streams, which CPUs and NVIDIA GPUs compute");
  if (config.attention_gate && !has_recurrence)
    refuse("gates of heads, which CPUs and NVIDIA GPUs compute");
  if (config.altup && dynamic_cast<const kernels::gaussian_gates*>(&backend) == nullptr)
    refuse("gates that few inputs pass");
  if (config.compressed && dynamic_cast<const kernels::compressed_attention*>(&backend) == nullptr)
    refuse("attention over compressed keys, which CPUs and NVIDIA GPUs compute");
  if (config.indexer && dynamic_cast<const kernels::sparse_attention*>(&backend) == nullptr)
    refuse("attention over positions that an indexer chooses, which CPUs and NVIDIA GPUs compute");
  if (config.grams && !has_grams)
    refuse("tables of n-grams, which CPUs and NVIDIA GPUs look up");
  if ((config.shared_blocks.mlp_rank > 0 || config.shared_blocks.attention_rank > 0) &&
      dynamic_cast<const kernels::low_rank_products*>(&backend) == nullptr)
    refuse(
      "products with pairs of low rank beside those of blocks that layers share, which CPUs and NVIDIA GPUs compute");
  if (needs_family_ops(config) && !backend.has_family_ops())
    refuse("operations that not every device has");
}

std::string why_undivided(const model_config& config) {
  const auto part = config.part();
  const auto family = "models of the family `" + config.family + "` cannot be divided ";
  const auto ahead_of = [&](int layer) { return family + "ahead of layer " + std::to_string(layer); };
  if (config.span && (config.layer_inputs > 0 || !config.kv_layers.empty()))
    return family + "by layers: later ones read what earlier ones keep";
  if (config.experts.shortcut && part.first > 0 && config.is_sparse(part.first - 1))
    return ahead_of(part.first) + ", behind which what experts of the layer before give is added";
  for (int i = part.first; !part.embeds && i < part.end; ++i)
    if (config.is_hashed(i))
      return ahead_of(i) + ", whose experts depend on tokens: those layers belong to the first part";
  if (!config.indexer.shared.empty() && config.indexer.shared[static_cast<std::size_t>(part.first)])
    return ahead_of(part.first) + ", which takes the choice of positions of the layer before";
  return {};
}

} // namespace troupe
