// Attention of a tile of queries over one partition of the context. Scores of the whole partition first, then their
// maximum, exponentials and sum, then the weighted sum of V: no rescaling within a partition. Every step handles a
// query's tokens in ascending order and touches no token outside the query's own range, so neither the other queries of
// the tile nor stale cache slots leave a trace. Only for the target units.
#pragma once

#include "kernels/cpu/tile.hpp"

namespace troupe::kernels {
namespace {

inline constexpr int partition_size = 256; // partition_tokens of ops.hpp
inline constexpr int block_size = 16;      // block_tokens
static_assert(block_size == lanes);
static_assert(partition_size == max_head_dim, "one stride serves queries and scores");
inline constexpr int row_stride = partition_size + 16; // no power of two: that would alias in L1

/// The tokens of the partition that a query sees, counted from the partition's start; empty: from >= to.
struct token_range {
  int from, to;
};

struct tile_scratch {
  alignas(64) float q[max_queries][row_stride]; // scaled
  alignas(64) float p[max_queries][row_stride]; // scores, then their exponentials
  token_range seen[max_queries];
};

inline int at_least(int x, int least) { return x < least ? least : x; }
inline int at_most(int x, int most) { return x > most ? most : x; }

inline float& m_of(attention_state state, int query) { return state.data[query * state.stride]; }
inline float& l_of(attention_state state, int query) { return state.data[query * state.stride + 1]; }
inline float* o_of(attention_state state, int query) { return state.data + query * state.stride + 16; }

template <class Operand>
struct partition_kernel {
  using element = typename Operand::element;

  const attention_op& op;
  const attention_tile& tile;
  attention_state state;
  tile_scratch& scratch;
  const std::int32_t* blocks; // of this partition

  const element* keys(int block) const {
    const auto* base = reinterpret_cast<const element*>(op.cache.data + blocks[block] * op.cache.block_bytes);
    return base + std::size_t(tile.kv_head) * 2 * block_size * op.cache.head_dim;
  }
  const element* values(int block) const { return keys(block) + block_size * op.cache.head_dim; }
  static const std::uint32_t* words(const float* p) { return reinterpret_cast<const std::uint32_t*>(p); }

  /// Scores of blocks [from, to), for all queries and tokens.
  void score(int from, int to) {
    const std::size_t dim = op.cache.head_dim;
    with_rows(tile.queries, [&]<int R>() {
      int block = from;
      for (; block + 1 < to; block += 2) {
        const element* const b[2] = {keys(block), keys(block + 1)};
        accumulate_tile<Operand, R, 2>(&scratch.p[0][block * 16], row_stride, true, words(scratch.q[0]), row_stride, b,
                                       16, dim);
      }
      if (block < to) {
        const element* const b[1] = {keys(block)};
        accumulate_tile<Operand, R, 1>(&scratch.p[0][block * 16], row_stride, true, words(scratch.q[0]), row_stride, b,
                                       16, dim);
      }
    });
  }

  /// Turns a query's scores into exponentials; sets m and l.
  void exponentiate(int query) {
    const auto [from, to] = scratch.seen[query];
    float* p = scratch.p[query];
    const vec least = broadcast(-__builtin_inff());
    vec highest = least;
    for (int t = from / 16 * 16; t < to; t += 16) {
      const vec s = select(from - t, to - t, load(p + t), least);
      store(p + t, s);
      highest = max(highest, s);
    }
    const float m = maximum(highest);
    vec total = zero();
    for (int t = from / 16 * 16; t < to; t += 16) {
      const vec e = select(from - t, to - t, exp(load(p + t) - broadcast(m)), zero());
      store(p + t, e);
      total = total + e;
    }
    m_of(state, query) = m;
    l_of(state, query) = sum(total);
  }

  /// o of R queries += p * V over the tokens [from, to) of one block.
  template <int R>
  void add_values(int query, int block, int from, int to) {
    const int dim = op.cache.head_dim;
    const auto* p = words(&scratch.p[query][block * 16 + from]);
    const element* v = values(block) + from * dim;
    float* o = o_of(state, query);
    int d = 0;
    for (; d + 16 < dim; d += 32) { // lanes beyond the last column hold no result
      const element* const b[2] = {v + d, v + d + 16};
      accumulate_tile<Operand, R, 2>(o + d, state.stride, false, p, row_stride, b, dim, to - from);
    }
    if (d < dim) {
      const element* const b[1] = {v + d};
      accumulate_tile<Operand, R, 1>(o + d, state.stride, false, p, row_stride, b, dim, to - from);
    }
  }

  /// Tokens [from, to) for one query.
  void add_values_of_range(int query, int from, int to) {
    while (from < to) {
      const int block = from / 16;
      const int end = at_most(to, block * 16 + 16);
      add_values<1>(query, block, from - block * 16, end - block * 16);
      from = end;
    }
  }

  void run() {
    int first = partition_size, last = 0;          // tokens that some query sees
    int common_first = 0, common_last = partition_size; // that all see
    for (int i = 0; i < tile.queries; ++i) {
      const auto [from, to] = scratch.seen[i];
      common_first = at_least(common_first, from);
      common_last = at_most(common_last, to);
      if (from < to) {
        first = at_most(first, from);
        last = at_least(last, to);
      }
    }
    for (int i = 0; i < tile.queries; ++i) {
      m_of(state, i) = l_of(state, i) = 0;
      for (int d = 0; d < op.cache.head_dim; d += lanes)
        store(o_of(state, i) + d, zero());
    }
    if (first >= last)
      return;

    score(first / 16, (last + 15) / 16);
    for (int i = 0; i < tile.queries; ++i)
      if (scratch.seen[i].from < scratch.seen[i].to)
        exponentiate(i);

    // Blocks that all queries see whole go together, the ragged ends query by query.
    int whole_first = (common_first + 15) / 16;
    int whole_last = common_last / 16;
    if (whole_first >= whole_last) {
      for (int i = 0; i < tile.queries; ++i)
        add_values_of_range(i, scratch.seen[i].from, scratch.seen[i].to);
      return;
    }
    for (int i = 0; i < tile.queries; ++i)
      add_values_of_range(i, scratch.seen[i].from, whole_first * 16);
    with_rows(tile.queries, [&]<int R>() {
      for (int block = whole_first; block < whole_last; ++block)
        add_values<R>(0, block, 0, 16);
    });
    for (int i = 0; i < tile.queries; ++i)
      add_values_of_range(i, whole_last * 16, scratch.seen[i].to);
  }
};

void attend_partition(const attention_op& op, const attention_tile& tile, int partition, attention_state state) {
  tile_scratch scratch;
  const int group = op.heads / op.cache.kv_heads;
  const int start = partition * partition_size;
  for (int i = 0; i < tile.queries; ++i) {
    const int row = (tile.first_query + i) / group;
    const int head = tile.kv_head * group + (tile.first_query + i) % group;
    const float* q = op.q + (tile.first_row + row) * op.q_stride + head * op.cache.head_dim;
    for (int d = 0; d < op.cache.head_dim; ++d)
      scratch.q[i][d] = q[d] * op.scale;
    const int end = tile.first_position + row + 1;
    scratch.seen[i] = {op.window > 0 ? at_least(end - op.window - start, 0) : 0, at_most(end - start, partition_size)};
  }
  const auto* blocks = tile.blocks + partition * (partition_size / block_size);
  if (op.cache.bf16)
    partition_kernel<bf16_operand>{op, tile, state, scratch, blocks}.run();
  else
    partition_kernel<f32_operand>{op, tile, state, scratch, blocks}.run();
}

void merge(const attention_op& op, const attention_tile& tile, attention_state state, attention_state part) {
  for (int i = 0; i < tile.queries; ++i) {
    if (l_of(part, i) == 0)
      continue;
    if (l_of(state, i) == 0) {
      m_of(state, i) = m_of(part, i);
      l_of(state, i) = l_of(part, i);
      for (int d = 0; d < op.cache.head_dim; d += lanes)
        store(o_of(state, i) + d, load(o_of(part, i) + d));
      continue;
    }
    const float m = m_of(state, i) > m_of(part, i) ? m_of(state, i) : m_of(part, i);
    const vec old_weight = exp(broadcast(m_of(state, i) - m));
    const vec new_weight = exp(broadcast(m_of(part, i) - m));
    const vec l = fma(broadcast(l_of(part, i)), new_weight, broadcast(l_of(state, i)) * old_weight);
    m_of(state, i) = m;
    store_some(&l_of(state, i), l, 1);
    for (int d = 0; d < op.cache.head_dim; d += lanes)
      store(o_of(state, i) + d, fma(load(o_of(part, i) + d), new_weight, load(o_of(state, i) + d) * old_weight));
  }
}

template <class Out>
void write_output(const attention_op& op, const attention_tile& tile, attention_state state) {
  const int group = op.heads / op.cache.kv_heads;
  for (int i = 0; i < tile.queries; ++i) {
    const int row = (tile.first_query + i) / group;
    const int head = tile.kv_head * group + (tile.first_query + i) % group;
    Out* out = static_cast<Out*>(op.out) + (tile.first_row + row) * op.out_stride + head * op.cache.head_dim;
    const vec l = broadcast(l_of(state, i));
    for (int d = 0; d < op.cache.head_dim; d += lanes)
      store_some(out + d, load(o_of(state, i) + d) / l, op.cache.head_dim - d);
  }
}

void finish(const attention_op& op, const attention_tile& tile, attention_state state) {
  if (op.out_bf16)
    write_output<std::uint16_t>(op, tile, state);
  else
    write_output<float>(op, tile, state);
}

} // namespace
} // namespace troupe::kernels
