// The part of class decoder that computes attention, also of latents.
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/decoder_tensors.hpp"

#include <cmath>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

/// The epsilon of the latents' norms, which no configuration changes.
constexpr float latent_eps = 1e-6f;

/// And of the norms of indexers' keys.
constexpr float index_eps = 1e-6f;

} // namespace

void decoder::add_attention(int i, const tensor& residual, const tensor& normed, kernels::kv_cache& cache,
                            const kernels::batch& who) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  const auto attended = buffer_rows(attended_, weights_->compute, rows_,
                                    as_size(config.heads_of(i)) * as_size(config.value_dim_of(i)));
  attend(i, normed, attended, cache, who);
  if (config.parallel && !config.shared_norm)
    normalise(normed, residual, layer.post_norm);
  add_branch(i, product_site::o, residual, attended, *layer.o, layer.o_bias, layer.attention_norm,
             config.recurrent.attention_scale);
}

void decoder::attend(int i, const tensor& normed, const tensor& attended, kernels::kv_cache& cache,
                     const kernels::batch& who) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  if (config.latent)
    return attend_latent(i, normed, attended, cache, who);
  const auto dim = as_size(config.head_dim_of(i)), heads = as_size(config.heads_of(i)), q = heads * dim,
             kv = config.has_kv(i) ? as_size(config.kv_heads_of(i)) * dim : 0,
             gates = config.attention_gate ? attended.cols : 0;
  const auto all = buffer_rows(qkv_, dtype::f32, normed.rows, q + 2 * kv + gates);
  const auto qkv = column_part(all, 0, q + 2 * kv);
  const int window = config.windows[as_size(i)], cached = config.cache_layer_of(i);
  const bool narrow = attended.cols < q;
  const auto product = narrow ? buffer_rows(spread_, dtype::f32, normed.rows, layer.qkv->outputs) : all;
  multiply(i, product_site::qkv, product, normed, *layer.qkv, layer.qkv_bias, kernels::store::set);
  if (narrow)
    spread_values(i, all, product);
  normalise_heads(i, qkv);
  if (config.qkv_clip > 0)
    backend_.clamp(qkv, config.qkv_clip);
  grow_queries(i, column_part(qkv, 0, q));
  kernels::head_norm norm;
  if (config.qk_normed(i) && !config.qk_norm_whole) {
    const bool plain = config.qk_norm_plain;
    norm = {plain ? float_data(ones_) : float_data(layer.q_norm), plain ? float_data(ones_) : float_data(layer.k_norm),
            config.norm_eps, config.qk_norm_behind};
  }
  const auto& rope = config.is_unrotated(i) ? unrotated_ : window > 0 && config.local_rope ? local_rope_ : rope_;
  backend_.rope_write_kv(qkv, config.heads_of(i), norm, rope.get(), cache, cached, who);
  if (kv > 0)
    backend_.copy_tokens(cache, cached, who.common);
  kernels::attention_scores scores{config.attention_scale != 0 ? config.attention_scale
                                                               : 1 / std::sqrt(static_cast<float>(dim)),
                                   window, config.attention_cap, float_data(slopes_), float_data(layer.sinks)};
  scores.chunk = config.chunk_of(i);
  scores.threshold = weights_->attention_threshold;
  if (config.encoder)
    scores.ahead = window > 0 ? window - 1 : kernels::all_ahead;
  const auto wide = narrow ? buffer_rows(spread_, weights_->compute, normed.rows, q) : attended;
  backend_.shaped_attention(wide, qkv, config.heads_of(i), scores, cache, cached, who);
  if (const auto value = attended.cols / heads; narrow)
    for (std::size_t h = 0; h < heads; ++h)
      backend_.gather_rows(column_part(attended, h * value, value), column_part(wide, h * dim, value));
  if (config.attention_gate)
    gate_attention(attended, column_part(all, q + 2 * kv, gates));
}

void decoder::spread_values(int i, const tensor& to, const tensor& product) {
  const auto& config = weights_->config;
  const auto dim = as_size(config.head_dim_of(i)), value = as_size(config.value_dim_of(i)),
             kv_heads = as_size(config.kv_heads_of(i)), before = (as_size(config.heads_of(i)) + kv_heads) * dim;
  backend_.gather_rows(column_part(to, 0, before), column_part(product, 0, before));
  backend_.scale(column_part(to, before, kv_heads * dim), 0);
  for (std::size_t h = 0; h < kv_heads; ++h)
    backend_.gather_rows(column_part(to, before + h * dim, value), column_part(product, before + h * value, value));
  if (const auto gates = to.cols - before - kv_heads * dim; gates > 0)
    backend_.gather_rows(column_part(to, before + kv_heads * dim, gates),
                         column_part(product, before + kv_heads * value, gates));
}

void decoder::normalise_heads(int i, const tensor& qkv) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  const auto dim = as_size(config.head_dim_of(i)), q = as_size(config.heads_of(i)) * dim,
             kv = as_size(config.kv_heads_of(i)) * dim;
  if (config.qk_norm_whole && config.qk_normed(i)) {
    const auto one = [&](std::size_t first, std::size_t width, const kernels::buffer& weights) {
      const auto all = column_part(qkv, first, width);
      if (!config.qk_norm_layer)
        return backend_.rms_norm(all, all, float_data(weights), config.norm_eps);
      for (std::size_t at = 0; at < width; at += dim)
        backend_.layer_norm(column_part(all, at, dim), column_part(all, at, dim), float_data(weights) + at, nullptr,
                            config.norm_eps);
    };
    one(0, q, layer.q_norm);
    one(q, kv, layer.k_norm);
  }
  if (!config.value_norm || !config.has_kv(i))
    return;
  for (std::size_t first = q + kv; first < q + 2 * kv; first += dim)
    backend_.rms_norm(column_part(qkv, first, dim), column_part(qkv, first, dim), float_data(ones_), config.norm_eps);
}

void decoder::grow_queries(int i, const tensor& queries) {
  const auto& config = weights_->config;
  if (config.growth && (!config.growth.unrotated || config.is_unrotated(i)))
    backend_.add_rows(queries, queries, 1, nullptr, growth_.data());
}

void decoder::make_latents(const layer_weights& layer, const tensor& normed) {
  const auto& config = weights_->config;
  const auto& latent = config.latent;
  const auto compute = weights_->compute;
  const auto& w = *layer.latent;
  const auto rows = normed.rows, heads = as_size(config.heads), rank = as_size(latent.kv_rank),
             plain = as_size(latent.plain), rotated = as_size(latent.rotated), query = plain + rotated;
  const auto down = buffer_rows(latent_down_, dtype::f32, rows, layer.qkv->outputs);
  const auto first = down.cols - rank - rotated; // the columns of the queries
  const auto slots = buffer_rows(latent_queries_, dtype::f32, rows, (heads + 2) * query);
  const auto latents = buffer_rows(latents_, dtype::f32, rows, (heads + 2) * rank);
  const auto inputs = buffer_rows(latent_inputs_, compute, rows, heads * query);
  const auto queries = column_part(slots, 0, heads * query);
  backend_.linear(down, normed, *layer.qkv);
  if (w.q) {
    const auto own = buffer_rows(latent_inputs_, compute, rows, first);
    backend_.rms_norm(own, column_part(down, 0, first), float_data(w.q_norm), latent_eps);
    backend_.linear(queries, own, *w.q);
    if (layer.indexer)
      backend_.linear(column_part(index_rows(rows), 0, layer.indexer->q->outputs), own, *layer.indexer->q);
  } else {
    backend_.gather_rows(queries, column_part(down, 0, first));
  }
  backend_.gather_rows(column_part(slots, heads * query + plain, rotated), column_part(down, first + rank, rotated));
  for (std::size_t slot = heads; slot < heads + 2; ++slot)
    backend_.rms_norm(column_part(latents, slot * rank, rank), column_part(down, first, rank), float_data(w.kv_norm),
                      latent_eps);
  backend_.gather_rows(inputs, queries);
  for (std::size_t h = 0; h < heads; ++h)
    backend_.linear(column_part(latents, h * rank, rank), column_part(inputs, h * query, plain), *w.key[h]);

  // Kernels rotate element i with i + head_dim / 2: both halves begin with one of the rotated dimensions' halves.
  const auto all = rows * (heads + 2), half = (rank + rotated) / 2;
  const auto to = buffer_rows(qkv_, dtype::f32, all, rank + rotated),
             turned = buffer_rows(latent_queries_, dtype::f32, all, query),
             still = buffer_rows(latents_, dtype::f32, all, rank);
  for (std::size_t i = 0; i < 2; ++i) {
    backend_.gather_rows(column_part(to, i * half, rotated / 2),
                         column_part(turned, plain + i * rotated / 2, rotated / 2));
    backend_.gather_rows(column_part(to, i * half + rotated / 2, rank / 2), column_part(still, i * rank / 2, rank / 2));
  }
}

tensor decoder::index_rows(std::size_t rows) const {
  const auto& indexer = weights_->config.indexer;
  return buffer_rows(index_, dtype::f32, rows, as_size(indexer.heads + 1) * as_size(indexer.dim));
}

void decoder::choose_positions(int i, const tensor& normed, kernels::kv_cache& cache, const kernels::batch& who) {
  const auto& config = weights_->config;
  if (!config.indexes(i))
    return; // the layer before has chosen
  const auto& w = *weights_->layer(i).indexer;
  const auto rows = normed.rows, dim = as_size(config.indexer.dim), heads = as_size(config.indexer.heads);
  const auto all = index_rows(rows), key = column_part(all, heads * dim, dim),
             weights = buffer_rows(index_weights_, dtype::f32, rows, heads);
  const int layer = config.index_layer_of(i);
  backend_.linear(key, normed, *w.key);
  backend_.layer_norm(key, key, float_data(w.key_norm.weight), float_data(w.key_norm.bias), index_eps);
  backend_.linear(weights, normed, *w.head);
  backend_.rope_write_kv(all, config.indexer.heads, {}, index_rope_.get(), cache, layer, who);
  backend_.copy_tokens(cache, layer, who.common);
  chosen_.reset(rows, config.indexer.top);
  sparse_->choose_positions(chosen_, column_part(all, 0, heads * dim), weights, config.indexer.heads, cache, layer,
                            who);
}

void decoder::attend_latent(int i, const tensor& normed, const tensor& attended, kernels::kv_cache& cache,
                            const kernels::batch& who) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  const auto compute = weights_->compute;
  const auto rows = normed.rows, heads = as_size(config.heads), dim = as_size(config.head_dim),
             rank = as_size(config.latent.kv_rank), rotated = as_size(config.latent.rotated),
             value = as_size(config.latent.value);
  const auto qkv = buffer_rows(qkv_, dtype::f32, rows, (heads + 2) * dim);
  make_latents(layer, normed);
  grow_queries(i, column_part(qkv, 0, heads * dim));
  const auto& rope = config.is_unrotated(i) ? unrotated_ : rope_;
  const int own = config.cache_layer_of(i);
  backend_.rope_write_kv(qkv, config.heads, {}, rope.get(), cache, own, who);
  backend_.copy_tokens(cache, own, who.common);
  kernels::attention_scores scores{config.attention_scale, 0, 0, nullptr, nullptr};
  scores.threshold = weights_->attention_threshold; // none with an indexer (check_sparsity)
  const auto over = buffer_rows(attended_, compute, rows, heads * dim);
  if (config.indexer) {
    choose_positions(i, normed, cache, who);
    sparse_->attend_chosen(over, qkv, config.heads, scores, chosen_, cache, own, who);
  } else {
    backend_.shaped_attention(over, qkv, config.heads, scores, cache, own, who);
  }
  const auto seen = buffer_rows(attended_, compute, rows * heads, dim),
             means = buffer_rows(latent_inputs_, compute, rows * heads, rank);
  for (std::size_t h = 0; h < 2; ++h)
    backend_.gather_rows(column_part(means, h * rank / 2, rank / 2),
                         column_part(seen, h * dim / 2 + rotated / 2, rank / 2));
  const auto inputs = buffer_rows(latent_inputs_, compute, rows, heads * rank),
             values = buffer_rows(latents_, dtype::f32, rows, heads * value);
  for (std::size_t h = 0; h < heads; ++h)
    backend_.linear(column_part(values, h * value, value), column_part(inputs, h * rank, rank),
                    *layer.latent->value[h]);
  backend_.gather_rows(attended, values);
}

} // namespace troupe
