#include "runtime/model/decoder/decoder_indexer.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

/// The epsilon of the norms of keys, which no configuration changes.
constexpr float index_eps = 1e-6f;

} // namespace

decoder_indexer::decoder_indexer(decoder_step& step)
  : step_(step),
    backend_(step.backend),
    sparse_(dynamic_cast<kernels::sparse_attention&>(step.backend)),
    rope_(upload_rotation(step.config().rope, step.config().indexer.dim, step.max_context(), step.backend)),
    rows_(step.allocate(step.bytes.index)),
    weights_(step.allocate(step.bytes.index_weights)) {
  chosen_.reset(as_size(step.max_rows()), step.config().indexer.top);
}

void decoder_indexer::read_queries(const tensor& in, const layer_weights& layer) {
  backend_.linear(column_part(all(in.rows), 0, layer.indexer->q->outputs), in, *layer.indexer->q);
}

void decoder_indexer::attend(const tensor& to, const tensor& qkv, const kernels::attention_scores& scores,
                             kernels::kv_cache& cache, int layer, const kernels::batch& who) {
  sparse_.attend_chosen(to, qkv, step_.config().heads, scores, chosen_, cache, layer, who);
}

tensor decoder_indexer::all(std::size_t rows) const {
  const auto& indexer = step_.config().indexer;
  return buffer_rows(rows_, dtype::f32, rows, as_size(indexer.heads + 1) * as_size(indexer.dim));
}

void decoder_indexer::choose(int i, const tensor& normed, kernels::kv_cache& cache, const kernels::batch& who) {
  const auto& config = step_.config();
  if (!config.indexes(i))
    return; // the layer before has chosen
  const auto& w = *step_.layer(i).indexer;
  const auto rows = normed.rows, dim = as_size(config.indexer.dim), heads = as_size(config.indexer.heads);
  const auto both = all(rows), key = column_part(both, heads * dim, dim),
             weights = buffer_rows(weights_, dtype::f32, rows, heads);
  const int layer = config.index_layer_of(i);
  backend_.linear(key, normed, *w.key);
  backend_.layer_norm(key, key, float_data(w.key_norm.weight), float_data(w.key_norm.bias), index_eps);
  backend_.linear(weights, normed, *w.head);
  backend_.rope_write_kv(both, config.indexer.heads, {}, rope_.get(), cache, layer, who);
  backend_.copy_tokens(cache, layer, who.common);
  chosen_.reset(rows, config.indexer.top);
  sparse_.choose_positions(chosen_, column_part(both, 0, heads * dim), weights, config.indexer.heads, cache, layer,
                           who);
}

} // namespace troupe
