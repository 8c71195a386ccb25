#include "runtime/model/decoder/decoder_latents.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

/// The epsilon of the latents' norms, which no configuration changes.
constexpr float latent_eps = 1e-6f;

} // namespace

decoder_latents::decoder_latents(decoder_step& step, decoder_positions& positions)
  : step_(step),
    backend_(step.backend),
    positions_(positions),
    qkv_(step.allocate(step.bytes.qkv)),
    down_(step.allocate(step.bytes.latent_down)),
    queries_(step.allocate(step.bytes.latent_queries)),
    latents_(step.allocate(step.bytes.latents)),
    inputs_(step.allocate(step.bytes.latent_inputs)) {
  if (step.config().indexer)
    indexer_ = std::make_unique<decoder_indexer>(step);
}

void decoder_latents::attend(int i, const tensor& normed, const tensor& attended, kernels::kv_cache& cache,
                             const kernels::batch& who) {
  const auto& config = step_.config();
  const auto& layer = step_.layer(i);
  const auto compute = step_.weights->compute;
  const auto rows = normed.rows, heads = as_size(config.heads), dim = as_size(config.head_dim),
             rank = as_size(config.latent.kv_rank), rotated = as_size(config.latent.rotated),
             value = as_size(config.latent.value);
  const auto qkv = buffer_rows(qkv_, dtype::f32, rows, (heads + 2) * dim);
  make_latents(layer, normed);
  positions_.grow(i, column_part(qkv, 0, heads * dim));
  const int own = config.cache_layer_of(i);
  backend_.rope_write_kv(qkv, config.heads, {}, positions_.rotation_of(i), cache, own, who);
  backend_.copy_tokens(cache, own, who.common);
  kernels::attention_scores scores{config.attention_scale, 0, 0, nullptr, nullptr};
  scores.threshold = step_.weights->attention_threshold; // none with an indexer (check_sparsity)
  const auto over = step_.attended(rows, heads * dim);
  if (indexer_) {
    indexer_->choose(i, normed, cache, who);
    indexer_->attend(over, qkv, scores, cache, own, who);
  } else {
    backend_.shaped_attention(over, qkv, config.heads, scores, cache, own, who);
  }
  const auto seen = step_.attended(rows * heads, dim), means = buffer_rows(inputs_, compute, rows * heads, rank);
  for (std::size_t h = 0; h < 2; ++h)
    backend_.gather_rows(column_part(means, h * rank / 2, rank / 2),
                         column_part(seen, h * dim / 2 + rotated / 2, rank / 2));
  const auto inputs = buffer_rows(inputs_, compute, rows, heads * rank),
             values = buffer_rows(latents_, dtype::f32, rows, heads * value);
  for (std::size_t h = 0; h < heads; ++h)
    backend_.linear(column_part(values, h * value, value), column_part(inputs, h * rank, rank),
                    *layer.latent->value[h]);
  backend_.gather_rows(attended, values);
}

void decoder_latents::make_latents(const layer_weights& layer, const tensor& normed) {
  const auto& config = step_.config();
  const auto& latent = config.latent;
  const auto compute = step_.weights->compute;
  const auto& w = *layer.latent;
  const auto rows = normed.rows, heads = as_size(config.heads), rank = as_size(latent.kv_rank),
             plain = as_size(latent.plain), rotated = as_size(latent.rotated), query = plain + rotated;
  const auto down = buffer_rows(down_, dtype::f32, rows, layer.qkv->outputs);
  const auto first = down.cols - rank - rotated; // the columns of the queries
  const auto slots = buffer_rows(queries_, dtype::f32, rows, (heads + 2) * query);
  const auto latents = buffer_rows(latents_, dtype::f32, rows, (heads + 2) * rank);
  const auto inputs = buffer_rows(inputs_, compute, rows, heads * query);
  const auto queries = column_part(slots, 0, heads * query);
  backend_.linear(down, normed, *layer.qkv);
  if (w.q) {
    const auto own = buffer_rows(inputs_, compute, rows, first);
    backend_.rms_norm(own, column_part(down, 0, first), float_data(w.q_norm), latent_eps);
    backend_.linear(queries, own, *w.q);
    if (layer.indexer)
      indexer_->read_queries(own, layer);
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
             turned = buffer_rows(queries_, dtype::f32, all, query),
             still = buffer_rows(latents_, dtype::f32, all, rank);
  for (std::size_t i = 0; i < 2; ++i) {
    backend_.gather_rows(column_part(to, i * half, rotated / 2),
                         column_part(turned, plain + i * rotated / 2, rotated / 2));
    backend_.gather_rows(column_part(to, i * half + rotated / 2, rank / 2), column_part(still, i * rank / 2, rank / 2));
  }
}

} // namespace troupe
