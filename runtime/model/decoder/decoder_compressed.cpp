#include "runtime/model/decoder/decoder_compressed.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"
#include "runtime/model/rope.hpp"

#include <cmath>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

} // namespace

decoder_compressed::decoder_compressed(decoder_step& step, decoder_positions& positions)
  : step_(step),
    backend_(step.backend),
    compressed_(dynamic_cast<kernels::compressed_attention&>(step.backend)),
    positions_(positions),
    down_(step.allocate(step.bytes.compressed_down)),
    qkv_(step.allocate(step.bytes.qkv)),
    made_(step.allocate(step.bytes.compressed_made)),
    over_(step.allocate(step.bytes.compressed_over)),
    inputs_(step.allocate(step.bytes.compressed_inputs)),
    index_(step.allocate(step.bytes.index)),
    index_weights_(step.allocate(step.bytes.index_weights)) {
  const auto& config = step.config();
  ones_ = backend_.upload(std::vector<float>(as_size(config.head_dim), 1.0f));
  if (!config.indexer)
    return;
  index_rope_ = upload_rotation(config.rope, config.indexer.dim, step.max_context(), backend_);
  chosen_.reset(as_size(step.max_rows()), config.indexer.top_within(step.max_context()));
}

void decoder_compressed::attend(int i, const tensor& normed, const tensor& attended, kernels::kv_cache& cache,
                                const kernels::batch& who) {
  const auto& config = step_.config();
  const auto& of = config.compressed;
  const auto& layer = step_.layer(i);
  const auto& w = *layer.compressed;
  const auto rows = normed.rows, heads = as_size(config.heads), dim = as_size(config.head_dim), all = heads * dim,
             rank = as_size(of.q_rank), groups = as_size(of.groups), group_rank = as_size(of.group_rank);
  const auto compute = step_.weights->compute;
  const int own = config.cache_layer_of(i), rate = of.rates[as_size(i)];
  const auto down = buffer_rows(down_, dtype::f32, rows, layer.qkv->outputs),
             latents = buffer_rows(inputs_, compute, rows, rank), qkv = buffer_rows(qkv_, dtype::f32, rows, all + dim);
  backend_.linear(down, normed, *layer.qkv);
  backend_.rms_norm(latents, column_part(down, 0, rank), float_data(w.q_norm), config.norm_eps);
  backend_.linear(column_part(qkv, 0, all), latents, *w.q);
  backend_.gather_rows(column_part(qkv, all, dim), column_part(down, rank, dim));
  const auto rope = positions_.rotation_of(i);
  backend_.rope_write_kv(qkv, config.heads, {float_data(ones_), float_data(w.kv_norm), config.norm_eps}, rope, cache,
                         own, who);
  backend_.copy_tokens(cache, own, who.common);
  kernels::entry_view seen{.tokens = own, .window = of.window, .rate = rate};
  if (rate > 0) {
    const bool indexed = config.indexes(i);
    const int entries = config.entry_layer_of(i);
    make_entries(w.entries, rate, indexed, rope, entries + 1, entries, normed, cache, who);
    seen.entries = entries;
    if (indexed) {
      choose(i, latents, normed, cache, who);
      seen.chosen = &chosen_;
    }
  }
  const kernels::attention_scores scores{1 / std::sqrt(static_cast<float>(dim)), 0, 0, nullptr,
                                         float_data(layer.sinks)};
  const auto over = buffer_rows(over_, dtype::f32, rows, all), inputs = buffer_rows(inputs_, compute, rows, all);
  compressed_.attend_entries(over, column_part(qkv, 0, all), config.heads, scores, seen, cache, who);
  const auto& turned = config.rope_of(i);
  compressed_.undo_rotation(inputs, over, config.heads, (turned.dims > 0 ? turned.dims : config.head_dim) / 2,
                            rope.angles, who);
  const auto low = buffer_rows(made_, dtype::f32, rows, groups * group_rank);
  for (std::size_t g = 0; g < groups; ++g)
    backend_.linear(column_part(low, g * group_rank, group_rank), column_part(inputs, g * (all / groups), all / groups),
                    *w.groups[g]);
  backend_.gather_rows(attended, low);
}

void decoder_compressed::make_entries(const entry_weights& w, int rate, bool overlaps, const kernels::rope_rows& rope,
                                      int from, int to, const tensor& normed, kernels::kv_cache& cache,
                                      const kernels::batch& who) {
  const auto made = buffer_rows(made_, dtype::f32, normed.rows, w.made->outputs); // keys, then gates
  backend_.linear(made, normed, *w.made);
  backend_.rope_write_kv(made, 0, {}, {}, cache, from, who);
  backend_.copy_tokens(cache, from, who.common);
  compressed_.make_entries({.rate = rate,
                            .overlaps = overlaps,
                            .bias = float_data(w.bias),
                            .norm = float_data(w.norm),
                            .eps = step_.config().norm_eps,
                            .angles = rope.angles},
                           cache, from, to, who);
  backend_.copy_tokens(cache, to, who.common);
}

void decoder_compressed::choose(int i, const tensor& latents, const tensor& normed, kernels::kv_cache& cache,
                                const kernels::batch& who) {
  const auto& config = step_.config();
  const auto& w = *step_.layer(i).indexer;
  const auto rows = normed.rows, heads = as_size(config.indexer.heads), dim = as_size(config.indexer.dim);
  const int keys = config.index_layer_of(i), rate = config.compressed.rates[as_size(i)];
  make_entries(step_.layer(i).compressed->index_entries, rate, true, index_rope_.get(), config.entry_layer_of(i) + 2,
               keys, normed, cache, who);
  const auto queries = buffer_rows(index_, dtype::f32, rows, heads * dim),
             weights = buffer_rows(index_weights_, dtype::f32, rows, heads);
  backend_.linear(queries, latents, *w.q);
  backend_.linear(weights, normed, *w.head);
  backend_.rope_write_kv(queries, config.indexer.heads, {}, index_rope_.get(), cache, keys, who);
  chosen_.reset(rows, config.indexer.top_within(step_.max_context()));
  compressed_.choose_entries(chosen_, queries, weights, config.indexer.heads, rate, cache, keys, who);
}

} // namespace troupe
