// Attention of a tile of queries over one partition of the context: scores of the whole partition, then their maximum,
// exponentials and sum, then the weighted sum of V, without rescaling within a partition. A query's sums take its
// tokens in ascending order whatever else is in the tile; tokens that only others see add exact zeros. Queries of
// sequences that share the partition's first blocks read these together, and go on with their own: both products are
// cut there, and no sum changes. Scores are in
// units of ln 2, exponentials are powers of two. Only for the target units.
#pragma once

#include "kernels/cpu/isa/activations.hpp"
#include "kernels/cpu/isa/attention_products.hpp"
#if defined(__AMX_BF16__)
#include "kernels/cpu/isa/amx/attention.hpp"
#endif

namespace troupe::kernels {
namespace {

#if defined(__AMX_BF16__)
inline constexpr int narrow_queries = tile_products<bf16_cells>::most_queries; // for K and V in 16 or 8 bits
#else
inline constexpr int narrow_queries = vector_products<bf16_cells>::most_queries;
#endif
inline constexpr int wide_queries = vector_products<f32_cells>::most_queries;

inline float& m_of(attention_state state, int query) { return state.data[query * state.stride]; }
inline float& l_of(attention_state state, int query) { return state.data[query * state.stride + 1]; }
inline float* o_of(attention_state state, int query) { return state.data + query * state.stride + 16; }

inline constexpr float log2_e = 0x1.715476p0f;

/// What changes the scores of one query: soft-capping, then ALiBi's distance times slope. In units of ln 2.
struct score_shape {
  static constexpr bool changes = true;
  vec cap, inverse_cap, slope;
  bool capped;
  float distance; // of the partition's first token from the query's position: negative

  score_shape(const attention_op& op, const attention_query& query, int partition)
    : cap(broadcast(op.soft_cap * log2_e)),
      inverse_cap(broadcast(op.soft_cap > 0 ? 1 / (op.soft_cap * log2_e) : 0)),
      slope(broadcast(op.slopes != nullptr ? op.slopes[query.head] * log2_e : 0)),
      capped(op.soft_cap > 0),
      distance(static_cast<float>(partition * partition_size - query.position)) {}

  vec operator()(vec s, int token) const {
    alignas(64) static constexpr float counted[lanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    if (capped)
      s = tanh(s * inverse_cap) * cap;
    return fma(broadcast(distance + static_cast<float>(token)) + load(counted), slope, s);
  }
};

/// Adds what a query's learned numbers say of distances. In units of ln 2.
struct distance_shape {
  static constexpr bool changes = true;
  const float *table, *mix;
  std::size_t stride;
  int width, extent;
  int first; // where in the table the distance of the partition's first token is

  distance_shape(const attention_op& op, const attention_query& query, int partition)
    : table(op.distances),
      mix(query.mix),
      stride(op.distance_stride),
      width(op.distance_width),
      extent(op.distance_extent),
      first(partition * partition_size - query.position + extent - 1) {}

  vec operator()(vec s, int token) const {
    const int at = first + token;
    if (at <= -lanes || at >= extent)
      return s;
    vec sum = zero();
    for (int i = 0; i < width; ++i)
      sum = fma(broadcast(mix[i]), load(table + i * stride + at), sum);
    return fma(sum, broadcast(log2_e), s);
  }
};

/// Scores as they are.
struct plain_scores {
  static constexpr bool changes = false;
  vec operator()(vec s, int) const { return s; }
};

/// Turns a query's scores of the blocks [first, last) into exponentials times the V scales of their tokens; sets m and
/// l. `Products` stores them in its own layout.
/// `least`: below this, relative to the largest score or to `elsewhere`, an exponential is 0; 16 that are 0 are not
/// computed.
template <class Products, class Shape>
void exponentiate(const Products& products, const Shape& shape, tile_scratch& scratch, int query, int first, int last,
                  float least, float elsewhere, attention_state state) {
  const auto [from, to] = scratch.seen[query];
  float* p = scratch.p[query];
  if (from >= to) {
    for (int t = first * 16; t < last * 16; t += 16)
      products.put_weights(p, t, zero());
    return;
  }
  const auto inside = [&, from = from, to = to](int t) { return from <= t && t + 16 <= to; };
  const vec none = broadcast(-__builtin_inff());
  const int begin = from / 16 * 16;
  vec highest = none;
  for (int t = begin; t < to; t += 16) {
    vec s = load(p + t);
    if constexpr (Products::scaled)
      store(p + t, s = s * load(scratch.k_scales + t));
    if constexpr (Shape::changes)
      store(p + t, s = shape(s, t));
    if (!inside(t))
      store(p + t, s = select(from - t, to - t, s, none));
    highest = max(highest, s);
  }
  const float m = maximum(highest);
  if (elsewhere > m)
    least += elsewhere - m;
  const vec top = broadcast(m), bound = broadcast(least > exp2_is_zero_below ? least : exp2_is_zero_below);
  vec total = zero();
  for (int t = first * 16; t < begin; t += 16)
    products.put_weights(p, t, zero());
  for (int t = begin; t < to; t += 16) {
    const vec below = load(p + t) - top;
    if (all_less(below, bound)) {
      products.put_weights(p, t, zero());
      continue;
    }
    vec e = where_at_least(exp2(below), below, bound);
    if (!inside(t))
      e = select(from - t, to - t, e, zero());
    total = total + e;
    if constexpr (Products::scaled)
      e = e * load(scratch.v_scales + t);
    products.put_weights(p, t, e);
  }
  for (int t = (to + 15) / 16 * 16; t < last * 16; t += 16)
    products.put_weights(p, t, zero());
  m_of(state, query) = m;
  l_of(state, query) = sum(total);
}

template <class Products>
std::size_t run_partition(const attention_op& op, const attention_tile& tile, int partition, attention_state state) {
  tile_scratch scratch;
  const int start = partition * partition_size;
  int first = partition_size, last = 0; // tokens that some query sees
  for (int i = 0; i < tile.count; ++i) {
    const int from = at_least(tile.queries[i].first - start, 0);
    const int to = at_most(tile.queries[i].end - start, partition_size);
    scratch.seen[i] = {from, to};
    m_of(state, i) = l_of(state, i) = 0;
    if (from < to) {
      first = at_most(first, from);
      last = at_least(last, to);
    } else {
      for (int d = 0; d < op.cache.head_dim; d += lanes)
        store(o_of(state, i) + d, zero());
    }
  }
  if (first >= last)
    return 0;
  first = first / 16;
  last = (last + 15) / 16;
  const Products products(op, tile, scratch);
  constexpr int per_partition = partition_blocks::blocks_per_partition;
  const attention_stretch whole{tile.blocks + partition * per_partition, 0, tile.count, first, last, true};
  const auto* stretches = tile.stretch_count > 0 ? tile.stretches : &whole;
  const int count = at_least(tile.stretch_count, 1);
  const auto blocks_of = [&](const attention_stretch& s) {
    const int end = &s == &whole ? tile.end_block - partition * per_partition : s.last;
    return partition_blocks(op, tile, s.blocks, s.first, s.last, end);
  };
  /// Begins to load what is read first behind a stretch.
  const auto fetch_behind = [&](const attention_stretch* s, stretch (partition_blocks::*of)(int) const) {
    if (++s == stretches + count)
      return;
    const auto blocks = blocks_of(*s);
    for (int block = s->first; block < at_most(s->first + partition_blocks::ahead, s->last); ++block)
      (blocks.*of)(block).fetch();
  };
  const bool shaped = op.soft_cap > 0 || op.slopes != nullptr;
  bool any = false; // weights that are not 0
  for (const auto* s = stretches; s < stretches + count; ++s) {
    fetch_behind(s, &partition_blocks::keys_of);
    products.score(blocks_of(*s), {s->first_query, s->queries}, s->first, s->last);
    // At once: the scales of later stretches come in the place of these.
    for (int i = s->first_query; s->end && i < s->first_query + s->queries; ++i) {
      const float highest = tile.queries[i].highest;
      if (shaped)
        exponentiate(products, score_shape(op, tile.queries[i], partition), scratch, i, first, s->last, op.least,
                     highest, state);
      else if (op.distances != nullptr)
        exponentiate(products, distance_shape(op, tile.queries[i], partition), scratch, i, first, s->last, op.least,
                     highest, state);
      else
        exponentiate(products, plain_scores(), scratch, i, first, s->last, op.least, highest, state);
      any |= l_of(state, i) != 0;
    }
  }
  std::size_t unread = 0;
  if (!any) {
    for (int i = 0; i < tile.count; ++i)
      for (int d = 0; d < op.cache.head_dim; d += lanes)
        store(o_of(state, i) + d, zero());
    for (const auto* s = stretches; s < stretches + count; ++s) {
      const auto blocks = blocks_of(*s);
      for (int block = 0; block < partition_blocks::ahead; ++block)
        blocks.next_keys(block).fetch();
      unread += static_cast<std::size_t>(s->last - s->first) * blocks.value_bytes();
    }
    return unread;
  }
  for (const auto* s = stretches; s < stretches + count; ++s) {
    if (blocks_of(*s).fetches_values())
      fetch_behind(s, &partition_blocks::values_of);
    unread += products.weigh(blocks_of(*s), {s->first_query, s->queries}, s->first, s->last, s->first > first,
                             o_of(state, s->first_query), state.stride);
  }
  return unread;
}

std::size_t attend_partition(const attention_op& op, const attention_tile& tile, int partition, attention_state state) {
  switch (op.cache.type) {
    case kv_type::f32: return run_partition<vector_products<f32_cells>>(op, tile, partition, state);
#if defined(__AMX_BF16__)
    case kv_type::bf16: return run_partition<tile_products<bf16_cells>>(op, tile, partition, state);
    case kv_type::int8: return run_partition<tile_products<int8_cells>>(op, tile, partition, state);
    case kv_type::fp8: return run_partition<tile_products<fp8_cells>>(op, tile, partition, state);
#elif defined(__AVX512BF16__)
    case kv_type::bf16: return run_partition<vector_products<bf16_cells>>(op, tile, partition, state);
    case kv_type::int8: return run_partition<vector_products<code_pairs<int8_cells>>>(op, tile, partition, state);
    case kv_type::fp8: return run_partition<vector_products<code_pairs<fp8_cells>>>(op, tile, partition, state);
#else
    case kv_type::bf16: return run_partition<vector_products<bf16_cells>>(op, tile, partition, state);
    case kv_type::int8: return run_partition<vector_products<int8_cells>>(op, tile, partition, state);
    case kv_type::fp8: return run_partition<vector_products<fp8_cells>>(op, tile, partition, state);
#endif
  }
  return 0;
}

void merge(const attention_op& op, int queries, attention_state state, attention_state part) {
  for (int i = 0; i < queries; ++i) {
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
    const vec old_weight = exp2(broadcast(m_of(state, i) - m));
    const vec new_weight = exp2(broadcast(m_of(part, i) - m));
    const vec l = fma(broadcast(l_of(part, i)), new_weight, broadcast(l_of(state, i)) * old_weight);
    m_of(state, i) = m;
    store_some(&l_of(state, i), l, 1);
    for (int d = 0; d < op.cache.head_dim; d += lanes)
      store(o_of(state, i) + d, fma(load(o_of(part, i) + d), new_weight, load(o_of(state, i) + d) * old_weight));
  }
}

/// A sink is one more token of the softmax, with a score of its own and no value.
inline void add_sink(const attention_op& op, const attention_query& query, int i, attention_state state) {
  const float score = op.sinks[query.head] * log2_e, m = m_of(state, i) > score ? m_of(state, i) : score;
  const vec kept = exp2(broadcast(m_of(state, i) - m)), sink = exp2(broadcast(score - m));
  store_some(&l_of(state, i), fma(broadcast(l_of(state, i)), kept, sink), 1);
  m_of(state, i) = m;
  for (int d = 0; d < op.cache.head_dim; d += lanes)
    store(o_of(state, i) + d, load(o_of(state, i) + d) * kept);
}

template <class Out>
void write_output(const attention_op& op, const attention_tile& tile, attention_state state) {
  for (int i = 0; i < tile.count; ++i) {
    if (op.sinks != nullptr)
      add_sink(op, tile.queries[i], i, state);
    const vec l = broadcast(l_of(state, i));
    for (int d = 0; d < op.cache.head_dim; d += lanes) {
      // Exact zeros from other queries' tokens may change the sign of a zero result: + 0 makes it positive.
      const vec o = load(o_of(state, i) + d) / l + zero();
      store_some(static_cast<Out*>(tile.queries[i].out) + d, o, op.cache.head_dim - d);
    }
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
