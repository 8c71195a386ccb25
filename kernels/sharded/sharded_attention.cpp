#include "kernels/sharded/sharded_attention.hpp"

#include "kernels/cpu/tensor_rows.hpp"
#include "kernels/sharded/column_ranges.hpp"

#include <cstring>

namespace troupe::kernels {

namespace {

/// Rows whose rotation is not worth a barrier.
constexpr std::size_t few_rows = 4;

/// Rows of each rank from which on they are better divided than heads that are not as many for all.
constexpr std::size_t many_rows = 16;

/// Neighbouring heads of all rows.
tensor heads_in(const tensor& rows, int first, int count, int dim) {
  return columns_of(rows,
                    {static_cast<std::size_t>(first) * static_cast<std::size_t>(dim),
                     static_cast<std::size_t>(count) * static_cast<std::size_t>(dim)});
}

/// What differs by heads begins at the first one.
attention_scores scores_from(attention_scores scores, int first) {
  if (scores.slopes != nullptr)
    scores.slopes += first;
  if (scores.sinks != nullptr)
    scores.sinks += first;
  return scores;
}

} // namespace

std::unique_ptr<kv_cache> sharded_attention::make_cache(const kv_shape& shape) {
  auto cache = std::make_unique<sharded_cache>();
  cache->shape = shape;
  const bool divided = shape.own.empty() && static_cast<std::size_t>(shape.kv_heads) >= ranks_.size();
  cache->parts.resize(divided ? ranks_.size() : 1);
  ranks_.each(cache->parts.size(), [&](rank& r, std::size_t i) {
    auto own = shape;
    own.kv_heads = cache->kv_heads(i).count;
    cache->parts[i] = r.device->make_kv_cache(own);
  });
  return cache;
}

void sharded_attention::copy(sharded_cache& cache, std::span<const block_copy> copies) {
  if (!copies.empty())
    ranks_.each(cache.parts.size(), [&](rank& r, std::size_t i) { r.device->copy_blocks(*cache.parts[i], copies); });
}

void sharded_attention::copy_tokens(sharded_cache& cache, int layer, std::span<const token_copy> copies) {
  for (std::size_t i = 0; i < cache.parts.size(); ++i) // too little for a barrier
    ranks_[i].device->copy_tokens(*cache.parts[i], layer, copies);
}

namespace {

/// Calls f(offset in a block's form, offset in the form of a part's block, bytes) for each layer.
template <class F>
void for_each_layer(const sharded_cache& cache, std::size_t part, const F& f) {
  const auto& shape = cache.shape;
  if (cache.parts.size() == 1)
    return f(0, 0, shape.block_bytes());
  const auto [first, count] = cache.kv_heads(part);
  const auto head = block_tokens * kv_bytes(shape.type, shape.head_dim);
  const auto bytes = static_cast<std::size_t>(count) * head;
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(shape.layers); ++layer)
    f((layer * static_cast<std::size_t>(shape.kv_heads) + static_cast<std::size_t>(first)) * head, layer * bytes,
      bytes);
}

} // namespace

void sharded_attention::export_blocks(const sharded_cache& cache, std::span<const block_export> blocks) {
  ranks_.each(cache.parts.size(), [&](rank& r, std::size_t i) {
    const auto& part = *cache.parts[i];
    std::vector<char> own(part.shape.block_bytes());
    for (const auto& b : blocks) {
      const block_export one[] = {{b.block, own.data()}};
      dynamic_cast<block_transfer&>(*r.device).export_blocks(part, one);
      for_each_layer(cache, i, [&](std::size_t whole, std::size_t at, std::size_t bytes) {
        std::memcpy(static_cast<char*>(b.to) + whole, own.data() + at, bytes);
      });
    }
  });
}

void sharded_attention::import_blocks(sharded_cache& cache, std::span<const block_import> blocks) {
  ranks_.each(cache.parts.size(), [&](rank& r, std::size_t i) {
    auto& part = *cache.parts[i];
    std::vector<char> own(part.shape.block_bytes());
    for (const auto& b : blocks) {
      for_each_layer(cache, i, [&](std::size_t whole, std::size_t at, std::size_t bytes) {
        std::memcpy(own.data() + at, static_cast<const char*>(b.from) + whole, bytes);
      });
      const block_import one[] = {{own.data(), b.block}};
      dynamic_cast<block_transfer&>(*r.device).import_blocks(part, one);
    }
  });
}

std::size_t sharded_attention::scratch_bytes(const kv_shape& shape, int heads, std::size_t rows) const {
  if (!shape.own.empty() || static_cast<std::size_t>(shape.kv_heads) < ranks_.size())
    return 0;
  return rows * static_cast<std::size_t>(heads + 2 * shape.kv_heads) * static_cast<std::size_t>(shape.head_dim) *
    sizeof(float);
}

template <class F>
void sharded_attention::by_rows(const batch& step, int window, const F& f) {
  divide_rows(step, window, ranks_.size(), ends_);
  ranks_.each(ends_.size(), [&](rank& r, std::size_t i) {
    cut_rows(step, i == 0 ? 0 : ends_[i - 1], ends_[i], r.sequences);
    f(r, batch{r.sequences, step.block_tables});
  });
}

void sharded_attention::rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const rope_rows& rope,
                                      sharded_cache& cache, int layer, const batch& step) {
  const int kv_heads = cache.shape.layer(layer).heads, dim = cache.shape.layer(layer).dim;
  const bool queries_only = qkv.cols == static_cast<std::size_t>(heads) * static_cast<std::size_t>(dim);
  if (!cache.divided() || queries_only)
    return by_rows(step, 1, [&](rank& r, const batch& own) {
      r.device->rope_write_kv(qkv, heads, norm, rope, *cache.parts.front(), layer, own);
    });
  const int group = heads / kv_heads;
  // A rank's backend takes q, k and v as neighbours: they are brought together, and rotated queries brought back.
  const auto rotate = [&](rank& r, std::size_t i) {
    const auto kv = cache.kv_heads(i);
    const int q = kv.count * group;
    const auto cols = static_cast<std::size_t>(q + 2 * kv.count) * static_cast<std::size_t>(dim);
    const tensor own{r.qkv.reserve(qkv.rows * cols), dtype::f32, qkv.rows, cols, cols};
    const auto queries = heads_in(qkv, kv.first * group, q, dim);
    r.device->gather_rows(heads_in(own, 0, q, dim), queries);
    r.device->gather_rows(heads_in(own, q, kv.count, dim), heads_in(qkv, heads + kv.first, kv.count, dim));
    r.device->gather_rows(heads_in(own, q + kv.count, kv.count, dim),
                          heads_in(qkv, heads + kv_heads + kv.first, kv.count, dim));
    r.device->rope_write_kv(own, q, norm, rope, *cache.parts[i], layer, step);
    r.device->gather_rows(queries, heads_in(own, 0, q, dim));
  };
  if (qkv.rows > few_rows)
    return ranks_.each(rotate);
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    rotate(ranks_[i], i);
}

void sharded_attention::run(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                            const sharded_cache& cache, int layer, const batch& step,
                            const distance_scores* distances) {
  const int kv_heads = cache.shape.layer(layer).heads, dim = cache.shape.layer(layer).dim;
  expect(heads % kv_heads == 0, "attention: heads must be a multiple of the KV heads");
  const auto attend = [&](rank& r, const kv_cache& part, head_range own, const batch& rows) {
    const auto to = heads_in(out, own.first, own.count, dim), queries = heads_in(qkv, own.first, own.count, dim);
    if (distances == nullptr)
      return r.device->shaped_attention(to, queries, own.count, scores_from(scores, own.first), part, layer, rows);
    auto mixed = *distances;
    mixed.mixes = heads_in(mixed.mixes, own.first, own.count, mixed.width);
    dynamic_cast<distance_attention&>(*r.device).attend_by_distance(
      to, queries, own.count, scores_from(scores, own.first), mixed, part, layer, rows);
  };
  const auto heads_of_part = [&](std::size_t i) {
    if (!cache.divided())
      return head_range{0, heads};
    const auto kv = cache.kv_heads(i);
    const int group = heads / kv_heads;
    return head_range{kv.first * group, kv.count * group};
  };
  const bool even = static_cast<std::size_t>(kv_heads) % ranks_.size() == 0;
  if (cache.divided() && (even || static_cast<std::size_t>(rows_of(step)) < many_rows * ranks_.size()))
    return ranks_.each([&](rank& r, std::size_t i) { attend(r, *cache.parts[i], heads_of_part(i), step); });
  if (kv_heads == 1) {
    const auto parts = std::min(static_cast<std::size_t>(heads), ranks_.size());
    return ranks_.each(parts, [&](rank& r, std::size_t i) {
      attend(r, *cache.parts.front(), heads_of(heads, static_cast<int>(i), static_cast<int>(parts)), step);
    });
  }
  by_rows(step, scores.window, [&](rank& r, const batch& own) {
    for (std::size_t i = 0; i < cache.parts.size(); ++i)
      attend(r, *cache.parts[i], heads_of_part(i), own);
  });
}

namespace {

sparse_attention& sparse(rank& r) { return dynamic_cast<sparse_attention&>(*r.device); }
compressed_attention& compressed(rank& r) { return dynamic_cast<compressed_attention&>(*r.device); }

} // namespace

template <class F>
void sharded_attention::by_queries(const tensor& out, const tensor& q, int heads, int dim,
                                   const attention_scores& scores, const F& f) {
  const auto parts = std::min(static_cast<std::size_t>(heads), ranks_.size());
  ranks_.each(parts, [&](rank& r, std::size_t i) {
    const auto own = heads_of(heads, static_cast<int>(i), static_cast<int>(parts));
    f(r, heads_in(out, own.first, own.count, dim), heads_in(q, own.first, own.count, dim), own.count,
      scores_from(scores, own.first));
  });
}

void sharded_attention::choose(position_choice& to, const tensor& queries, const tensor& weights, int heads,
                               const sharded_cache& cache, int layer, const batch& step) {
  by_rows(step, 0, [&](rank& r, const batch& own) {
    sparse(r).choose_positions(to, queries, weights, heads, *cache.parts.front(), layer, own);
  });
}

void sharded_attention::attend_chosen(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                                      const position_choice& chosen, const sharded_cache& cache, int layer,
                                      const batch& step) {
  expect(!cache.divided(), "attend_chosen: every rank needs all of K and V");
  const auto shape = cache.shape.layer(layer);
  if (shape.heads > 1)
    return by_rows(step, chosen.most, [&](rank& r, const batch& own) {
      sparse(r).attend_chosen(out, qkv, heads, scores, chosen, *cache.parts.front(), layer, own);
    });
  by_queries(out, qkv, heads, shape.dim, scores,
             [&](rank& r, const auto& to, const auto& q, int count, const auto& own) {
               sparse(r).attend_chosen(to, q, count, own, chosen, *cache.parts.front(), layer, step);
             });
}

void sharded_attention::make_entries(const entry_making& how, sharded_cache& cache, int from, int to,
                                     const batch& step) {
  expect(!cache.divided(), "make_entries: every rank needs all of what entries are made of");
  by_rows(step, 1,
          [&](rank& r, const batch& own) { compressed(r).make_entries(how, *cache.parts.front(), from, to, own); });
}

void sharded_attention::choose_entries(position_choice& to, const tensor& queries, const tensor& weights, int heads,
                                       int rate, const sharded_cache& cache, int layer, const batch& step) {
  by_rows(step, 0, [&](rank& r, const batch& own) {
    compressed(r).choose_entries(to, queries, weights, heads, rate, *cache.parts.front(), layer, own);
  });
}

void sharded_attention::attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                                       const entry_view& seen, const sharded_cache& cache, const batch& step) {
  expect(!cache.divided(), "attend_entries: every rank needs all keys");
  const int dim = cache.shape.layer(seen.tokens).dim;
  by_queries(out, q, heads, dim, scores, [&](rank& r, const auto& to, const auto& queries, int count, const auto& own) {
    compressed(r).attend_entries(to, queries, count, own, seen, *cache.parts.front(), step);
  });
}

void sharded_attention::undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles,
                                      const batch& step) {
  by_rows(step, 1, [&](rank& r, const batch& own) { compressed(r).undo_rotation(out, x, heads, pairs, angles, own); });
}

} // namespace troupe::kernels
