#include "runtime/model/decoder/decoder_attention.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

} // namespace

decoder_attention::decoder_attention(decoder_step& step, decoder_positions& positions)
  : step_(step), backend_(step.backend), positions_(positions) {
  const auto& config = step.config();
  if (config.latent) {
    latents_ = std::make_unique<decoder_latents>(step, positions);
    return;
  }
  if (config.compressed) {
    compressed_ = std::make_unique<decoder_compressed>(step, positions);
    return;
  }
  qkv_ = step.allocate(step.bytes.qkv);
  spread_ = step.allocate(step.bytes.spread);
  if (config.qk_norm_plain || config.value_norm)
    ones_ = backend_.upload(std::vector<float>(as_size(config.head_dim), 1.0f));
  if (config.indexer)
    indexer_ = std::make_unique<decoder_indexer>(step, positions);
  if (config.attention_gate)
    gate_ = &dynamic_cast<kernels::recurrent_ops&>(backend_);
  if (config.distances)
    distances_ = &dynamic_cast<kernels::distance_attention&>(backend_);
}

void decoder_attention::add(int i, const tensor& normed, kernels::kv_cache& cache, const kernels::batch& who) {
  const auto& config = step_.config();
  const auto& layer = step_.layer(i);
  const auto attended = attend(i, normed, cache, who);
  if (config.parallel && !config.shared_norm)
    step_.normalise(normed, step_.residual(), layer.post_norm);
  step_.add_branch(i, product_site::o, attended, *layer.o, layer.o_bias, layer.attention_norm,
                   config.recurrent.attention_scale);
}

tensor decoder_attention::attend(int i, const tensor& normed, kernels::kv_cache& cache, const kernels::batch& who) {
  const auto& config = step_.config();
  const auto attended = step_.attended(step_.rows(), as_size(config.attended_of(i)));
  if (latents_)
    latents_->attend(i, normed, attended, cache, who);
  else if (compressed_)
    compressed_->attend(i, normed, attended, cache, who);
  else
    attend(i, normed, attended, cache, who);
  return attended;
}

void decoder_attention::attend(int i, const tensor& normed, const tensor& attended, kernels::kv_cache& cache,
                               const kernels::batch& who) {
  const auto& config = step_.config();
  const auto& layer = step_.layer(i);
  const auto dim = as_size(config.head_dim_of(i)), heads = as_size(config.heads_of(i)), q = heads * dim,
             kv = config.has_kv(i) ? as_size(config.kv_heads_of(i)) * dim : 0,
             gates = config.attention_gate ? attended.cols : 0, mixes = as_size(config.mixes_of(i));
  const auto all = buffer_rows(qkv_, dtype::f32, normed.rows, q + 2 * kv + gates + mixes);
  const auto qkv = column_part(all, 0, q + 2 * kv), queries = column_part(all, 0, q),
             mixed = column_part(all, q + 2 * kv + gates, mixes);
  const int window = config.windows[as_size(i)], cached = config.cache_layer_of(i);
  const bool narrow = attended.cols < q;
  const auto product = narrow ? buffer_rows(spread_, dtype::f32, normed.rows, layer.qkv->outputs) : all;
  step_.multiply(i, product_site::qkv, product, normed, *layer.qkv, layer.qkv_bias, kernels::store::set);
  if (narrow)
    spread_values(i, all, product);
  if (convolutions_ != nullptr)
    convolutions_->change_cached(i, column_part(qkv, q, kv), column_part(qkv, q + kv, kv));
  normalise_heads(i, qkv);
  if (config.qkv_clip > 0)
    backend_.clamp(qkv, config.qkv_clip);
  if (!config.distances)
    positions_.grow(i, queries);
  kernels::head_norm norm;
  if (config.qk_normed(i) && !config.qk_norm_whole) {
    const bool plain = config.qk_norm_plain;
    norm = {plain ? float_data(ones_) : float_data(layer.q_norm), plain ? float_data(ones_) : float_data(layer.k_norm),
            config.norm_eps, config.qk_norm_behind};
  }
  backend_.rope_write_kv(qkv, config.heads_of(i), norm, positions_.rotation_of(i), cache, cached, who);
  if (kv > 0)
    backend_.copy_tokens(cache, cached, who.common);
  if (config.distances) { // behind the norm, and what distances add grows, too
    positions_.grow(i, queries);
    positions_.grow(i, mixed);
  }
  kernels::attention_scores scores{config.attention_scale_of(i), window, config.attention_cap, positions_.slopes(),
                                   float_data(layer.sinks)};
  scores.chunk = config.chunk_of(i);
  scores.threshold = step_.weights->attention_threshold;
  if (config.encoder)
    scores.ahead = window > 0 ? window - 1 : kernels::all_ahead;
  const auto wide = narrow ? buffer_rows(spread_, step_.weights->compute, normed.rows, q) : attended;
  if (config.chooses(i)) {
    indexer_->choose(i, normed, cache, who);
    indexer_->attend(wide, qkv, scores, cache, cached, who);
  } else if (config.distances) {
    distances_->attend_by_distance(
      wide, qkv, config.heads_of(i), scores,
      {mixed, float_data(layer.distances), config.distances.width, config.distance_extent_of(i)}, cache, cached, who);
  } else {
    backend_.shaped_attention(wide, qkv, config.heads_of(i), scores, cache, cached, who);
  }
  if (const auto value = attended.cols / heads; narrow)
    for (std::size_t h = 0; h < heads; ++h)
      backend_.gather_rows(column_part(attended, h * value, value), column_part(wide, h * dim, value));
  if (config.attention_gate)
    gate_->gate(attended, attended, column_part(all, q + 2 * kv, gates),
                {.sigmoid = !config.softplus_gate, .softplus = config.softplus_gate});
}

void decoder_attention::spread_values(int i, const tensor& to, const tensor& product) {
  const auto& config = step_.config();
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

void decoder_attention::normalise_heads(int i, const tensor& qkv) {
  const auto& config = step_.config();
  const auto& layer = step_.layer(i);
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

} // namespace troupe
