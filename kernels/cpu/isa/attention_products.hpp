// The two matrix products of attention over one partition, queries times K and weights times V, with vectors: a tile of
// queries by tokens, or by dimensions, stays in registers. Also the parts shared with the products on AMX tiles. Only
// for the target units.
#pragma once

#include "kernels/cpu/isa/int_simd.hpp"
#include "kernels/cpu/isa/tile.hpp"

namespace troupe::kernels {
namespace {

inline constexpr int partition_size = 256; // partition_tokens of ops.hpp
inline constexpr int block_size = 16;      // block_tokens
static_assert(block_size == lanes);
// Odd numbers of cache lines, to avoid aliasing in L1.
inline constexpr int query_stride = max_head_dim + 16;
inline constexpr int row_stride = partition_size + 16;
static_assert(query_stride / 16 % 2 == 1 && row_stride / 16 % 2 == 1);

inline int at_least(int x, int least) { return x < least ? least : x; }
inline int at_most(int x, int most) { return x > most ? most : x; }

/// The tokens of a partition that a query sees, counted from the partition's start. Empty if from >= to.
struct token_range {
  int from, to;
};

/// The blocks of a partition in which some query has weights other than 0, and where: of words of V, which are tokens, or
/// pairs of them in bf16.
struct live_blocks {
  int count = 0;
  int unread = 0;    // words of blocks that are visited
  bool whole = true; // too few of them to be worth skipping
  std::uint8_t block[partition_size / block_size];
  std::uint16_t words[partition_size / block_size];
};

struct tile_scratch {
  alignas(64) float q[max_queries][query_stride]; // scaled
  alignas(64) float p[max_queries][row_stride];   // scores, then weights
  alignas(64) float k_scales[partition_size];
  alignas(64) float v_scales[partition_size];
  token_range seen[max_queries];
};

/// The scale of queries that makes exp(score) a power of two.
inline float query_scale(const attention_op& op) { return op.scale * 0x1.715476p0f; }

/// Memory that will be read soon. Prefetching it in parts, between other work, overlaps better than all at once.
struct stretch {
  const char* data = nullptr;
  std::size_t bytes = 0;

  void fetch(int part = 0, int parts = 1) const {
    for (std::size_t i = bytes * part / parts & ~std::size_t(63); i < bytes * (part + 1) / parts; i += 64)
      __builtin_prefetch(data + i);
  }
};

/// K and V of a partition's blocks. They are prefetched some blocks ahead, also beyond the partition's end: block
/// tables are scattered, so the hardware prefetcher cannot guess.
class partition_blocks {
public:
  /// The partition's blocks before `last` are read.
  partition_blocks(const attention_op& op, const attention_tile& tile, int partition, int last)
    : code_unit_(op.cache.type == kv_type::fp8 ? fp8_unit : 1),
      key_bytes_(op.cache.key_bytes),
      value_bytes_(op.cache.value_bytes),
      keys_(op.cache.data + tile.kv_head * op.cache.head_bytes),
      values_(keys_ + op.cache.value_offset),
      blocks_(tile.blocks + partition * blocks_per_partition),
      all_values_(op.least == -__builtin_inff()),
      last_(last),
      end_(tile.end_block - partition * blocks_per_partition) {}

  const char* keys(int block) const { return scales(block) + key_bytes_ - value_bytes_; }
  const char* values(int block) const { return values_ + blocks_[block] * value_bytes_; }

  /// The memory to prefetch while the keys of `block` are read.
  stretch after_keys(int block) const {
    if (block + ahead < last_)
      return {scales(block + ahead), key_bytes_};
    const int next = block + ahead - last_;
    return all_values_ && next < last_ ? stretch{values(next), value_bytes_} : stretch{};
  }
  /// The keys of block `index` of the next partition.
  stretch next_keys(int index) const {
    const int next = blocks_per_partition + index;
    return next < end_ ? stretch{scales(next), key_bytes_} : stretch{};
  }
  std::size_t value_bytes() const { return value_bytes_; }
  /// Whether after_keys does so for values.
  bool fetches_values() const { return all_values_; }
  stretch after_values(int block) const {
    if (block + ahead < last_)
      return {values(block + ahead), value_bytes_};
    const int next = blocks_per_partition + block + ahead - last_;
    return next < end_ ? stretch{scales(next), key_bytes_} : stretch{};
  }

  /// Loads the scales of a block's tokens, of codes as they are read; called together with its keys.
  void load_scales(tile_scratch& scratch, int block) const {
    const auto* from = reinterpret_cast<const float*>(scales(block));
    const vec unit = broadcast(code_unit_);
    store(scratch.k_scales + block * 16, load(from) * unit);
    store(scratch.v_scales + block * 16, load(from + 16) * unit);
  }

  static constexpr int ahead = 4;

private:
  static constexpr float fp8_unit = 256; // load_e4m3 gives numbers times 2^-8
  static constexpr int blocks_per_partition = partition_size / block_size;

  const char* scales(int block) const { return keys_ + blocks_[block] * key_bytes_; } // followed by the keys

  float code_unit_;
  std::size_t key_bytes_, value_bytes_; // per block
  const char *keys_, *values_;          // of this head
  const std::int32_t* blocks_;
  bool all_values_; // or some may not be needed
  int last_, end_;
};

// Element types of K and V. `operand` is `steps` tokens or dimensions of 16 dimensions or tokens; `accumulate` adds their
// products with as many of a query's dimensions or weights, which begin at `a` and are stored by `put`.

struct float_cells {
  static constexpr int steps = 1;
  static constexpr int weight_words = 1; // of a word of V
  using operand = vec;
  static void put(float* row, int i, vec x) { store(row + i, x); }
  static const float* at(const float* row, int i) { return row + i; }
  static vec accumulate(vec sum, const float* a, vec b) { return fma(broadcast(*a), b, sum); }
};

struct f32_cells : float_cells {
  using element = float;
  static constexpr bool scaled = false;
  static vec column(const element* p) { return load(p); }
};

struct int8_cells : float_cells {
  using element = std::int8_t;
  static constexpr bool scaled = true;
  static vec column(const element* p) { return load_bytes(p); }
};

struct fp8_cells : float_cells {
  using element = std::int8_t; // their bits
  static constexpr bool scaled = true;
  static vec column(const element* p) { return load_e4m3(p); }
};

#if defined(TROUPE_PAIRS)

#if defined(__AVX512BF16__)
inline void put_bf16(std::uint16_t* p, vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x.v));
}
#else
inline void put_bf16(std::uint16_t* p, const vec& x) { store_bf16(p, x); }
#endif

/// Queries and weights are rounded to bf16, too, and their pairs multiplied as pair_operand does: twice as fast.
struct bf16_cells {
  using element = std::uint32_t;
  static constexpr int steps = 2;
  static constexpr int weight_words = 1;
  static constexpr bool scaled = false;
  using operand = pairs16;
  static void put(float* row, int i, vec x) { put_bf16(reinterpret_cast<std::uint16_t*>(row) + i, x); }
  static const float* at(const float* row, int i) { return row + i / 2; }
  static operand column(const element* p) { return pair_operand::column(p); }
  static vec accumulate(vec sum, const float* a, operand b) {
    return pair_operand::accumulate(sum, pair_operand::row(reinterpret_cast<const std::uint32_t*>(a)), b);
  }
};

#else

struct bf16_cells {
  using element = std::uint32_t;
  static constexpr int steps = 2;
  static constexpr int weight_words = 2;
  static constexpr bool scaled = false;
  struct operand {
    vec even, odd;
  };
  static void put(float* row, int i, vec x) { store(row + i, x); }
  static const float* at(const float* row, int i) { return row + i; }
  static operand column(const element* p) { return {even_bf16(p), odd_bf16(p)}; }
  static vec accumulate(vec sum, const float* a, const operand& b) {
    return fma(broadcast(a[1]), b.odd, fma(broadcast(a[0]), b.even, sum));
  }
};

#endif

/// sums[r][v] += sum over k < count, ascending, of a[r * a_stride + k] * b[v][k][lane]. For each line that is read, the
/// one `ahead[v]` bytes behind it is prefetched.
template <class Cells, int R, int V>
[[gnu::always_inline]] inline void accumulate(vec (&sums)[R][V], const float* a, std::size_t a_stride,
                                              const typename Cells::element* const (&b)[V], std::size_t b_stride,
                                              int count, const std::ptrdiff_t (&ahead)[V]) {
  for (int k = 0; k < count; k += Cells::steps) {
    typename Cells::operand columns[V];
    for (int v = 0; v < V; ++v) {
      const auto* column = b[v] + k / Cells::steps * b_stride;
      __builtin_prefetch(reinterpret_cast<const char*>(column) + ahead[v]);
      columns[v] = Cells::column(column);
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        sums[r][v] = Cells::accumulate(sums[r][v], Cells::at(a + r * a_stride, k), columns[v]);
  }
}

/// The same for those words k of a block whose bits are set.
template <class Cells, int R, int V>
[[gnu::always_inline]] inline void accumulate_words(vec (&sums)[R][V], const float* a, std::size_t a_stride,
                                                    const typename Cells::element* const (&b)[V], std::size_t b_stride,
                                                    unsigned words) {
  for (; words != 0; words &= words - 1) {
    const int k = __builtin_ctz(words);
    typename Cells::operand columns[V];
    for (int v = 0; v < V; ++v)
      columns[v] = Cells::column(b[v] + std::size_t(k) * b_stride);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        sums[r][v] = Cells::accumulate(sums[r][v], Cells::at(a + r * a_stride, k * Cells::steps), columns[v]);
  }
}

template <class Cells>
class vector_products {
public:
  // The sums that fit in the target's registers, beside their operands.
#if defined(__AVX512F__) || (defined(TROUPE_SVE) && __ARM_FEATURE_SVE_BITS == 512)
  static constexpr int most_queries = 12, most_sums = 24;
#elif defined(TROUPE_SVE) && __ARM_FEATURE_SVE_BITS == 256
  static constexpr int most_queries = 6, most_sums = 12;
#else
  static constexpr int most_queries = 6, most_sums = 6;
#endif
  static constexpr bool scaled = Cells::scaled;

  vector_products(const attention_op& op, const attention_tile& tile, tile_scratch& scratch)
    : count_(tile.count), dim_(op.cache.head_dim), scratch_(scratch) {
    const vec scale = broadcast(query_scale(op));
    for (int i = 0; i < tile.count; ++i)
      for (int d = 0; d < dim_; d += lanes)
        Cells::put(scratch.q[i], d, load_some(tile.queries[i].q + d, dim_ - d) * scale);
  }

  /// Scores of the blocks [first, last), for all queries and tokens.
  void score(const partition_blocks& blocks, int first, int last) const {
    with_rows<most_queries>(count_, [&]<int R>() {
      constexpr int V = vectors(R);
      int block = first;
      for (; block + V <= last; block += V)
        score_blocks<R, V>(blocks, block);
      for (; block < last; ++block)
        score_blocks<R, 1>(blocks, block);
    });
  }

  /// Overwrites scores with weights, which take no more room.
  void put_weights(float* p, int token, vec weights) const { Cells::put(p, token, weights); }

  /// o = weights * V over the blocks [first, last). Lanes beyond the last dimension hold no result. Values that no
  /// query has a weight for would add exact zeros, and are not read. Returns their bytes.
  std::size_t weigh(const partition_blocks& blocks, int first, int last, float* o, std::size_t stride) const {
    const auto live = find_live(first, last);
    if (!live.whole || !blocks.fetches_values())
      fetch_live(blocks, live, 0, partition_blocks::ahead);
    for (int i = 0; !live.whole && i < partition_blocks::ahead; ++i)
      blocks.next_keys(i).fetch();
    with_rows<most_queries>(count_, [&]<int R>() {
      constexpr int V = vectors(R);
      int d = 0;
      for (; d + (V - 1) * lanes < dim_; d += V * lanes)
        weigh_dimensions<R, V>(blocks, live, first, last, o, stride, d);
      for (; d < dim_; d += lanes)
        weigh_dimensions<R, 1>(blocks, live, first, last, o, stride, d);
    });
    if (live.whole)
      return 0;
    return static_cast<std::size_t>(live.unread) * (blocks.value_bytes() / block_words);
  }

private:
  using element = typename Cells::element;

  static constexpr int block_words = block_size / Cells::steps;

  live_blocks find_live(int first, int last) const {
    live_blocks live;
    for (int block = first; block < last; ++block) {
      std::uint32_t any[block_words] = {};
      for (int r = 0; r < count_; ++r) {
        std::uint32_t words[block_words][Cells::weight_words];
        std::memcpy(words, Cells::at(scratch_.p[r], block * block_size), sizeof words);
        for (int i = 0; i < block_words; ++i)
          any[i] |= words[i][0] | words[i][Cells::weight_words - 1];
      }
      unsigned set = 0;
      for (int i = 0; i < block_words; ++i)
        set |= (any[i] != 0 ? 1u : 0u) << i;
      live.block[live.count] = static_cast<std::uint8_t>(block);
      live.words[live.count] = static_cast<std::uint16_t>(set);
      live.count += set != 0;
      live.unread += block_words - __builtin_popcount(set);
    }
    live.whole = live.unread * 8 < (last - first) * block_words; // the end of a text alone changes nothing
    return live;
  }

  /// Prefetches the words of live blocks [first, end).
  void fetch_live(const partition_blocks& blocks, const live_blocks& live, int first, int end) const {
    const auto bytes = blocks.value_bytes() / block_words;
    for (int i = first; i < at_most(end, live.count); ++i)
      for (unsigned words = live.words[i]; words != 0; words &= words - 1)
        stretch{blocks.values(live.block[i]) + static_cast<std::size_t>(__builtin_ctz(words)) * bytes, bytes}.fetch();
  }

  static constexpr int vectors(int rows) { return 4 * rows <= most_sums ? 4 : 2 * rows <= most_sums ? 2 : 1; }

  template <int R, int V>
  void score_blocks(const partition_blocks& blocks, int block) const {
    vec sums[R][V];
    const element* k[V];
    std::ptrdiff_t ahead[V];
    for (int v = 0; v < V; ++v) {
      k[v] = reinterpret_cast<const element*>(blocks.keys(block + v));
      ahead[v] = distance(k[v], blocks.after_keys(block + v));
      if constexpr (scaled)
        blocks.load_scales(scratch_, block + v);
      for (int r = 0; r < R; ++r)
        sums[r][v] = zero();
    }
    accumulate<Cells>(sums, scratch_.q[0], query_stride, k, block_size, dim_, ahead);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        store(&scratch_.p[r][(block + v) * block_size], sums[r][v]);
  }

  template <int R, int V>
  void weigh_dimensions(const partition_blocks& blocks, const live_blocks& live, int first, int last, float* o,
                        std::size_t stride, int d) const {
    vec sums[R][V];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        sums[r][v] = zero();
    for (int i = 0; !live.whole && i < live.count; ++i) {
      const auto* values = reinterpret_cast<const element*>(blocks.values(live.block[i])) + d;
      const element* columns[V];
      for (int v = 0; v < V; ++v)
        columns[v] = values + v * lanes;
      if (d == 0)
        fetch_live(blocks, live, i + partition_blocks::ahead, i + partition_blocks::ahead + 1);
      accumulate_words<Cells>(sums, Cells::at(scratch_.p[0], live.block[i] * block_size), row_stride, columns,
                              static_cast<std::size_t>(dim_), live.words[i]);
    }
    for (int block = first; live.whole && block < last; ++block) {
      const auto* values = reinterpret_cast<const element*>(blocks.values(block));
      const element* columns[V];
      std::ptrdiff_t ahead[V];
      for (int v = 0; v < V; ++v) {
        columns[v] = values + d + v * lanes;
        ahead[v] = distance(values, blocks.after_values(block));
      }
      accumulate<Cells>(sums, Cells::at(scratch_.p[0], block * block_size), row_stride, columns, dim_, block_size,
                        ahead);
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        store(o + r * stride + d + v * lanes, sums[r][v]);
  }

  /// Bytes from the line being read to the one to prefetch; 0 if there is none.
  static std::ptrdiff_t distance(const element* from, const stretch& to) {
    return to.data == nullptr ? 0 : to.data - reinterpret_cast<const char*>(from);
  }

  int count_, dim_;
  tile_scratch& scratch_;
};

} // namespace
} // namespace troupe::kernels
