#include "runtime/model/decoder/decoder_indexer.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"
#include "runtime/model/rope.hpp"

#include <vector>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

} // namespace

decoder_indexer::decoder_indexer(decoder_step& step, decoder_positions& positions)
  : step_(step),
    backend_(step.backend),
    sparse_(dynamic_cast<kernels::sparse_attention&>(step.backend)),
    positions_(positions),
    top_(step.config().indexer.top_within(step.max_context())),
    rope_(upload_rotation(step.config().rope, step.config().indexer.dim, step.max_context(), step.backend)),
    rows_(step.allocate(step.bytes.index)),
    weights_(step.config().indexer.group > 1 ? nullptr : step.allocate(step.bytes.index_weights)),
    input_(step.allocate(step.bytes.index_input)) {
  const auto& config = step.config();
  if (config.indexer.group > 1)
    weights_ = backend_.upload(std::vector<float>(as_size(step.max_rows()) * as_size(config.indexer.heads), 1.0f));
  chosen_.reset(as_size(step.max_rows()) * as_size(config.indexer.choices()), top_);
}

void decoder_indexer::read_queries(const tensor& in, const layer_weights& layer) {
  backend_.linear(column_part(all(in.rows), 0, layer.indexer->q->outputs), in, *layer.indexer->q);
}

void decoder_indexer::attend(const tensor& to, const tensor& qkv, const kernels::attention_scores& scores,
                             kernels::kv_cache& cache, int layer, const kernels::batch& who) {
  sparse_.attend_chosen(to, qkv, step_.config().heads, scores, chosen_, cache, layer, who);
}

void decoder_indexer::read_hidden(int i) {
  const auto hidden = as_size(step_.config().hidden), rows = step_.rows();
  const auto& w = *step_.layer(i).indexer;
  auto* memory = static_cast<float*>(input_.get());
  const tensor wide{memory, dtype::f32, rows, hidden, hidden};
  const tensor narrow{memory + rows * hidden, step_.weights->compute, rows, hidden, hidden};
  step_.normalise(wide, step_.residual(), step_.layer(i).input_norm);
  backend_.layer_norm(narrow, wide, float_data(w.query_norm.weight), float_data(w.query_norm.bias),
                      step_.config().indexer.norm_eps);
  read_queries(narrow, step_.layer(i));
}

tensor decoder_indexer::all(std::size_t rows) const {
  const auto& indexer = step_.config().indexer;
  return buffer_rows(rows_, dtype::f32, rows, as_size(indexer.heads + 1) * as_size(indexer.dim));
}

kernels::rope_rows decoder_indexer::rotation_of(int i) const {
  return step_.config().is_unrotated(i) ? kernels::rope_rows() : rope_.get();
}

void decoder_indexer::choose(int i, const tensor& normed, kernels::kv_cache& cache, const kernels::batch& who) {
  const auto& config = step_.config();
  if (!config.indexes(i))
    return; // the layer before has chosen
  if (config.indexer.block > 0)
    return choose_blocks(i, normed, cache, who);
  if (config.indexer.group > 1)
    return choose_groups(i, normed, cache, who);
  const auto& w = *step_.layer(i).indexer;
  const auto rows = normed.rows, dim = as_size(config.indexer.dim), heads = as_size(config.indexer.heads);
  const auto both = all(rows), key = column_part(both, heads * dim, dim),
             weights = buffer_rows(weights_, dtype::f32, rows, heads);
  const int layer = config.index_layer_of(i);
  if (config.indexer.reads_hidden)
    read_hidden(i);
  if (config.head_growth)
    positions_.grow_heads(column_part(both, 0, heads * dim), dim, w.growth.scale, w.growth.bias);
  backend_.linear(key, normed, *w.key);
  backend_.layer_norm(key, key, float_data(w.key_norm.weight), float_data(w.key_norm.bias), config.indexer.norm_eps);
  backend_.linear(weights, normed, *w.head);
  backend_.rope_write_kv(both, config.indexer.heads, {}, rotation_of(i), cache, layer, who);
  backend_.copy_tokens(cache, layer, who.common);
  chosen_.reset(rows, top_);
  sparse_.choose_positions(chosen_, column_part(both, 0, heads * dim), weights, config.indexer.heads, cache, layer,
                           who);
}

void decoder_indexer::choose_blocks(int i, const tensor& normed, kernels::kv_cache& cache, const kernels::batch& who) {
  const auto& config = step_.config();
  const auto& w = *step_.layer(i).indexer;
  const auto dim = as_size(config.indexer.dim), heads = as_size(config.indexer.heads);
  const auto both = all(normed.rows), queries = column_part(both, 0, heads * dim);
  const int layer = config.index_layer_of(i);
  backend_.linear(queries, normed, *w.q);
  backend_.linear(column_part(both, heads * dim, dim), normed, *w.key);
  backend_.rope_write_kv(both, config.indexer.heads,
                         {float_data(w.head_norm), float_data(w.key_norm.weight), config.norm_eps}, rotation_of(i),
                         cache, layer, who);
  backend_.copy_tokens(cache, layer, who.common);
  chosen_.reset(normed.rows, top_, {config.indexer.block, config.indexer.newest}, config.indexer.heads);
  sparse_.choose_positions(chosen_, queries, {}, config.indexer.heads, cache, layer, who);
}

void decoder_indexer::choose_groups(int i, const tensor& normed, kernels::kv_cache& cache, const kernels::batch& who) {
  const auto& config = step_.config();
  const auto& w = *step_.layer(i).indexer;
  const auto rows = normed.rows, dim = as_size(config.indexer.dim), heads = as_size(config.indexer.heads);
  const auto both = all(rows), queries = column_part(both, 0, heads * dim),
             weights = buffer_rows(weights_, dtype::f32, rows, heads);
  const int layer = config.index_layer_of(i);
  backend_.linear(queries, normed, *w.q);
  backend_.linear(column_part(both, heads * dim, dim), normed, *w.key);
  backend_.rope_write_kv(both, config.indexer.heads, {}, {}, cache, layer, who);
  backend_.copy_tokens(cache, layer, who.common);
  const auto rope = rotation_of(i);
  backend_.rope_write_kv(queries, config.indexer.heads,
                         {float_data(w.head_norm), float_data(w.head_norm), config.norm_eps}, rope, cache, layer, who);
  chosen_.reset(rows, top_, {config.indexer.group, float_data(w.key_norm.weight), config.norm_eps, rope});
  sparse_.choose_positions(chosen_, queries, weights, config.indexer.heads, cache, layer, who);
}

} // namespace troupe
