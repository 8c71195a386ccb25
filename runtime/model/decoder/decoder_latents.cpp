#include "runtime/model/decoder/decoder_latents.hpp"

#include "kernels/recurrent.hpp"
#include "runtime/model/decoder/decoder_tensors.hpp"

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

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
    indexer_ = std::make_unique<decoder_indexer>(step, positions);
  if (step.config().attention_gate)
    gate_ = &dynamic_cast<kernels::recurrent_ops&>(backend_);
}

void decoder_latents::attend(int i, const tensor& normed, const tensor& attended, kernels::kv_cache& cache,
                             const kernels::batch& who) {
  const auto& config = step_.config();
  const auto& layer = step_.layer(i);
  const auto compute = step_.weights->compute;
  const auto rows = normed.rows, heads = as_size(config.heads), dim = as_size(config.head_dim),
             rank = as_size(config.latent.kv_rank), rotated = as_size(config.latent.rotated),
             value = as_size(config.latent.value), keys = config.has_kv(i) ? std::size_t{2} : 0;
  const auto qkv = buffer_rows(qkv_, dtype::f32, rows, (heads + keys) * dim);
  make_latents(i, normed);
  positions_.grow(i, column_part(qkv, 0, heads * dim));
  if (config.head_growth)
    positions_.grow_heads(column_part(qkv, 0, heads * dim), dim, layer.latent->growth.scale, layer.latent->growth.bias);
  const int own = config.cache_layer_of(i);
  backend_.rope_write_kv(qkv, config.heads, {}, positions_.rotation_of(i), cache, own, who);
  if (keys > 0)
    backend_.copy_tokens(cache, own, who.common);
  kernels::attention_scores scores{config.attention_scale, 0, 0, nullptr, float_data(layer.sinks)};
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
  if (config.attention_gate) {
    const auto down = buffer_rows(down_, dtype::f32, rows, layer.qkv->outputs);
    gate_->gate(attended, attended, column_part(down, down.cols - heads * value, heads * value), {.sigmoid = true});
  }
}

void decoder_latents::make_latents(int i, const tensor& normed) {
  const auto& config = step_.config();
  const auto& layer = step_.layer(i);
  const auto& latent = config.latent;
  const auto compute = step_.weights->compute;
  const auto& w = *layer.latent;
  const auto rows = normed.rows, heads = as_size(config.heads), rank = as_size(latent.kv_rank),
             plain = as_size(config.latent_plain_of(i)), rotated = as_size(config.latent_rotated_of(i)),
             query = plain + rotated, keys = config.has_kv(i) ? std::size_t{2} : 0;
  const auto down = buffer_rows(down_, dtype::f32, rows, layer.qkv->outputs);
  const auto gates = config.attention_gate ? heads * as_size(latent.value) : 0,
             first = down.cols - gates - (keys > 0 ? rank + rotated : 0); // the columns of the queries
  const auto slots = buffer_rows(queries_, dtype::f32, rows, (heads + keys) * query);
  const auto latents = buffer_rows(latents_, dtype::f32, rows, (heads + keys) * rank);
  const auto inputs = buffer_rows(inputs_, compute, rows, heads * query);
  const auto queries = column_part(slots, 0, heads * query);
  backend_.linear(down, normed, *layer.qkv);
  if (w.q) {
    const auto own = buffer_rows(inputs_, compute, rows, first);
    backend_.rms_norm(own, column_part(down, 0, first), float_data(w.q_norm), latent.norm_eps);
    backend_.linear(queries, own, *w.q);
    if (layer.indexer && !config.indexer.reads_hidden)
      indexer_->read_queries(own, layer);
  } else {
    backend_.gather_rows(queries, column_part(down, 0, first));
  }
  if (keys > 0 && rotated > 0)
    backend_.gather_rows(column_part(slots, heads * query + plain, rotated), column_part(down, first + rank, rotated));
  for (std::size_t slot = heads; slot < heads + keys; ++slot)
    backend_.rms_norm(column_part(latents, slot * rank, rank), column_part(down, first, rank), float_data(w.kv_norm),
                      latent.norm_eps);
  backend_.gather_rows(inputs, queries);
  for (std::size_t h = 0; h < heads; ++h)
    backend_.linear(column_part(latents, h * rank, rank), column_part(inputs, h * query, plain), *w.key[h]);

  // Kernels rotate element i with i + head_dim / 2: both halves begin with one of the rotated dimensions' halves.
  const auto all = rows * (heads + keys), turn = as_size(latent.rotated), half = (rank + turn) / 2;
  const auto to = buffer_rows(qkv_, dtype::f32, all, rank + turn),
             turned = buffer_rows(queries_, dtype::f32, all, query),
             still = buffer_rows(latents_, dtype::f32, all, rank);
  for (std::size_t n = 0; n < 2; ++n) {
    if (const auto part = column_part(to, n * half, turn / 2); rotated > 0)
      backend_.gather_rows(part, column_part(turned, plain + n * turn / 2, turn / 2));
    else
      backend_.scale(part, 0);
    backend_.gather_rows(column_part(to, n * half + turn / 2, rank / 2), column_part(still, n * rank / 2, rank / 2));
  }
}

} // namespace troupe
