#include "runtime/import/gguf/gguf_check.hpp"

#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/model_source.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace troupe {

namespace fs = std::filesystem;

namespace {

/// Rotations are compared by what they do, at a few lengths.
bool rotate_alike(const rope_config& one, const rope_config& other, int head_dim, int context) {
  if (std::abs(one.attention_factor - other.attention_factor) > 1e-6 * other.attention_factor)
    return false;
  for (const int length : {1, context / 2 + 1, context}) {
    const auto a = inverse_frequencies(one, head_dim, length), b = inverse_frequencies(other, head_dim, length);
    if (!std::ranges::equal(a, b, [](float x, float y) { return std::abs(x - y) <= 1e-6f * std::abs(y) + 1e-25f; }))
      return false;
  }
  return true;
}

} // namespace

void check_written(const fs::path& file, const model_config& made_of, const std::string& model) {
  const auto config = open_gguf(file).config;
  const auto same = [&](const char* what, const auto& a, const auto& b) {
    if (a == b)
      return;
    std::error_code ignored;
    fs::remove(file, ignored);
    throw failure(errc::unsupported, model + ": GGUF cannot say " + what + " of a `" + made_of.family + "` model");
  };
  same("which layers have a window", config.windows, made_of.windows);
  const auto unrotated = [](const model_config& c) {
    std::vector<bool> layers;
    for (int i = 0; i < c.layers; ++i)
      layers.push_back(c.is_unrotated(i));
    return layers;
  };
  same("which layers rotate", unrotated(config), unrotated(made_of));
  const auto rotates = [&](bool slides) {
    for (int i = 0; i < made_of.layers; ++i)
      if (made_of.parts_of(i).attention && !made_of.is_unrotated(i) && made_of.slides(i) == slides)
        return true;
    return false;
  };
  const auto rope_of = [](const model_config& c, bool slides) {
    return slides && c.local_rope ? *c.local_rope : c.rope;
  };
  for (const bool slides : {false, true}) {
    const int dim = slides && made_of.local_head_dim > 0 ? made_of.local_head_dim : made_of.head_dim;
    if (rotates(slides))
      same("how positions rotate",
           rotate_alike(rope_of(config, slides), rope_of(made_of, slides), dim, made_of.max_context), true);
  }
  same("which dimensions rotate together", made_of.latent && config.rope.interleaved != made_of.rope.interleaved,
       false);
  same("how positions enter", config.positions, made_of.positions);
  same("how many positions there are", config.max_context >= made_of.max_context, true);
  same("whether tokens see what follows", std::tuple(config.encoder, config.token_types, config.embedding_norm),
       std::tuple(made_of.encoder, made_of.token_types, made_of.embedding_norm));
  same("what gates of heads are", std::tuple(config.attention_gate, config.softplus_gate),
       std::tuple(made_of.attention_gate, made_of.softplus_gate));
  same("what attention sees", config.chunks, made_of.chunks);
  same("how scores grow", config.growth, made_of.growth);
  same("which activation", config.act, made_of.act);
  same("where norms are",
       std::tuple(config.norms, config.recurrence_normed_before, config.skips_first_norm, config.final_norm),
       std::tuple(made_of.norms, made_of.recurrence_normed_before, made_of.skips_first_norm, made_of.final_norm));
  same(
    "which heads are normed",
    std::tuple(config.qk_norm, config.qk_norm_whole, config.qk_norm_behind, config.value_norm, config.qkv_clip),
    std::tuple(made_of.qk_norm, made_of.qk_norm_whole, made_of.qk_norm_behind, made_of.value_norm, made_of.qkv_clip));
  const auto widths = [](const model_config& c) {
    std::vector<std::tuple<int, int, int, int>> layers;
    for (int i = 0; i < c.layers; ++i)
      layers.emplace_back(c.parts_of(i).attention ? c.head_dim_of(i) : 0,
                          c.parts_of(i).attention ? c.kv_heads_of(i) : 0, c.kv_layer_of(i),
                          c.parts_of(i).mlp && !c.is_sparse(i) ? c.ffn_of(i) : 0);
    return layers;
  };
  same("the shapes of layers", widths(config), widths(made_of));
  same("how streams are updated", std::tuple(config.altup, config.hyper, config.gate_cutoffs),
       std::tuple(made_of.altup, made_of.hyper, made_of.gate_cutoffs));
  same("which keys are compressed", std::tuple(config.compressed, config.hashed),
       std::tuple(made_of.compressed, made_of.hashed));
  same("which blocks layers share", config.shared_blocks, made_of.shared_blocks);
  same("what layers get of each token", std::tuple(config.layer_inputs, config.layer_scales),
       std::tuple(made_of.layer_inputs, made_of.layer_scales));
  same("which positions attention sees, and what it knows of tokens", std::tuple(config.indexer, config.grams),
       std::tuple(made_of.indexer, made_of.grams));
  same("which branches are parallel", std::tuple(config.parallel, config.shared_norm),
       std::tuple(made_of.parallel, made_of.shared_norm));
  const auto routed = [](expert_config experts) { // of one group it does not matter how good it is
    experts.group_by_two = experts.group_by_two && experts.groups > 1;
    return experts;
  };
  same("how experts are chosen", routed(config.experts), routed(made_of.experts));
  same("which layers have experts", config.sparse, made_of.sparse);
  same("which layers have what", config.parts, made_of.parts);
  const auto& one = config.recurrent;
  const auto& other = made_of.recurrent;
  same("how its layers recur",
       std::tuple(one.type, one.taps, one.conv_bias, one.projection_bias, one.heads, one.key_heads, one.key_dim,
                  one.value_dim, one.norm, one.norm_group, one.head_norm, one.rank, one.least_dt,
                  one.most_dt > one.least_dt, one.most_learned, one.decay_bound, one.parts_norm, one.parts_norm_plain),
       std::tuple(other.type, other.taps, other.conv_bias, other.projection_bias, other.heads, other.key_heads,
                  other.key_dim, other.value_dim, other.norm, other.norm_group, other.head_norm, other.rank,
                  other.least_dt, other.most_dt > other.least_dt, other.most_learned, other.decay_bound,
                  other.parts_norm, other.parts_norm_plain));
  const auto epsilon = [](const model_config& c) {
    return c.recurrent.norm_eps > 0 ? c.recurrent.norm_eps : c.norm_eps;
  };
  same("the epsilon of norms in its layers", made_of.recurrent && epsilon(config) != epsilon(made_of), false);
  if (gguf_architecture_of_family(made_of.family).is(gguf_architecture::scaled))
    return; // its multipliers are part of the weights
  const auto close = [](float a, float b) { return std::abs(a - b) <= 1e-6f * std::abs(b); };
  const auto scale = [](const model_config& c) {
    return c.attention_scale != 0 ? c.attention_scale : 1 / std::sqrt(static_cast<float>(c.head_dim));
  };
  same("how scores are scaled", close(scale(config), scale(made_of)) && config.alibi_scale == made_of.alibi_scale,
       true);
  same("how values are scaled",
       close(config.embedding_scale, made_of.embedding_scale) && close(config.logit_scale, made_of.logit_scale) &&
         close(config.residual_scale, made_of.residual_scale) && close(config.logit_cap, made_of.logit_cap) &&
         close(config.attention_cap, made_of.attention_cap),
       true);
}

} // namespace troupe
