// The two matrix products of attention over one partition, queries times K and weights times V, with vectors: a tile of
// queries by tokens, or by dimensions, stays in registers. Also the parts shared with the products on AMX tiles. Only
// for the target units.
#pragma once

#include "kernels/cpu/isa/code_pairs.hpp"
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

/// Neighbouring queries of a tile.
struct query_span {
  int first, count;
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
  /// The blocks [first, last) of `table`, which ends at `end`, are read.
  partition_blocks(const attention_op& op, const attention_tile& tile, const std::int32_t* table, int first, int last,
                   int end)
    : code_unit_(op.cache.type == kv_type::fp8 ? fp8_unit : 1),
      scale_bytes_(op.cache.type == kv_type::int8 || op.cache.type == kv_type::fp8 ? 2 * block_size * sizeof(float)
                                                                                   : 0),
      key_bytes_(op.cache.key_bytes),
      value_bytes_(op.cache.value_bytes),
      keys_(op.cache.data + tile.kv_head * op.cache.head_bytes),
      values_(keys_ + op.cache.value_offset),
      blocks_(table),
      all_values_(op.least == -__builtin_inff()),
      first_(first),
      last_(last),
      end_(end) {}

  const char* keys(int block) const { return scales(block) + scale_bytes_; }
  const char* values(int block) const { return values_ + blocks_[block] * value_bytes_; }

  stretch keys_of(int block) const { return {scales(block), key_bytes_}; }
  stretch values_of(int block) const { return {values(block), value_bytes_}; }

  /// The memory to prefetch while the keys of `block` are read.
  stretch after_keys(int block) const {
    if (block + ahead < last_)
      return {scales(block + ahead), key_bytes_};
    const int next = first_ + block + ahead - last_;
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
  static constexpr int blocks_per_partition = partition_size / block_size;

private:
  const char* scales(int block) const { return keys_ + blocks_[block] * key_bytes_; } // followed by the keys

  float code_unit_;
  std::size_t scale_bytes_, key_bytes_, value_bytes_; // per block
  const char *keys_, *values_;                        // of this head
  const std::int32_t* blocks_;
  bool all_values_; // or some may not be needed
  int first_, last_, end_;
};

// Element types of K and V. `operand` is `steps` tokens or dimensions of 16 dimensions or tokens, a word, which has
// `rows` rows of elements; `accumulate` adds their products with as many of a query's dimensions or weights, which begin
// at `a` and are stored by `put`.

struct float_cells {
  static constexpr int steps = 1;
  static constexpr int rows = 1;
  static constexpr int weight_words = 1; // of a word of V
  using operand = vec;
  static void put(float* row, int i, vec x) { store(row + i, x); }
  static vec accumulate(vec sum, const float* a, vec b) { return fma(broadcast(*a), b, sum); }
};

struct f32_cells : float_cells {
  using element = float;
  static constexpr bool scaled = false;
  static vec column(const element* p) { return load(p); }
};

struct int8_cells : float_cells {
  static constexpr bool signed_bits = false; // two's complement
  using element = std::int8_t;
  static constexpr bool scaled = true;
  static vec column(const element* p) { return load_bytes(p); }
};

struct fp8_cells : float_cells {
  static constexpr bool signed_bits = true; // a sign, then the magnitude's bits
  using element = std::int8_t;              // their bits
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
  static constexpr int rows = 1;
  static constexpr int weight_words = 1;
  static constexpr bool scaled = false;
  using operand = pairs16;
  static void put(float* row, int i, vec x) { put_bf16(reinterpret_cast<std::uint16_t*>(row) + i, x); }
  static operand column(const element* p) { return pair_operand::column(p); }
  static vec accumulate(vec sum, const float* a, operand b) {
    return pair_operand::accumulate(sum, pair_operand::row(reinterpret_cast<const std::uint32_t*>(a)), b);
  }
};

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)

/// Where the bytes of pairs come from: low bytes of 64 codes, then high ones.
struct byte_orders {
  alignas(64) std::uint8_t of_keys[2][64];
  alignas(64) std::uint8_t of_values[2][64];
};

inline constexpr byte_orders code_orders = [] {
  byte_orders to = {};
  for (int column = 0; column < 2; ++column)
    for (int i = 0; i < 64; ++i) {
      const int lane = i / 4, odd = i / 2 % 2, high = i % 2 * 64;
      to.of_keys[column][i] = static_cast<std::uint8_t>(high + column * 32 + odd * 16 + lane);
      to.of_values[column][i] = static_cast<std::uint8_t>(high + odd * 32 + column * 16 + lane);
    }
  return to;
}();

/// Codes of 8 bits, which become bf16 exactly, in pairs.
template <class Codes>
struct code_pairs : bf16_cells {
  using element = std::int8_t;
  static constexpr int rows = 2;
  static constexpr bool scaled = true;

  /// Two columns of K: 32 codes of each follow each other.
  static void columns(operand& first, operand& second, const element* a, const element* b) {
    widen(first, second, a, b, code_orders.of_keys);
  }
  /// Two columns of V that follow each other: 32 codes of the row of an even and of an odd token.
  static void neighbours(operand& first, operand& second, const element* even, const element* odd) {
    widen(first, second, even, odd, code_orders.of_values);
  }

private:
  static void widen(operand& first, operand& second, const element* a, const element* b,
                    const std::uint8_t (&order)[2][64]) {
    const auto half = [](const element* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); };
    const auto [low, high] = widened_codes<Codes::signed_bits>(
      _mm512_inserti64x4(_mm512_castsi256_si512(half(a)), half(b), 1));
    first = _mm512_permutex2var_epi8(low, _mm512_load_si512(order[0]), high);
    second = _mm512_permutex2var_epi8(low, _mm512_load_si512(order[1]), high);
  }
};

#endif

#else

struct bf16_cells {
  using element = std::uint32_t;
  static constexpr int steps = 2;
  static constexpr int rows = 1;
  static constexpr int weight_words = 2;
  static constexpr bool scaled = false;
  struct operand {
    vec even, odd;
  };
  static void put(float* row, int i, vec x) { store(row + i, x); }
  static operand column(const element* p) { return {even_bf16(p), odd_bf16(p)}; }
  static vec accumulate(vec sum, const float* a, const operand& b) {
    return fma(broadcast(a[1]), b.odd, fma(broadcast(a[0]), b.even, sum));
  }
};

#endif

/// Words of V columns from row `at` of each on; rows are b_stride apart. Columns of V are neighbours.
template <class Cells, bool OfValues, int V>
[[gnu::always_inline]] inline void load_columns(typename Cells::operand (&to)[V],
                                                const typename Cells::element* const (&b)[V], std::size_t at,
                                                std::size_t b_stride) {
  if constexpr (Cells::rows == 1) {
    for (int v = 0; v < V; ++v)
      to[v] = Cells::column(b[v] + at);
  } else {
    typename Cells::operand unused;
    for (int v = 0; v < V; v += 2) {
      const int other = v + 1 < V ? v + 1 : v;
      auto& second = v + 1 < V ? to[other] : unused;
      if constexpr (OfValues) // whose rows may be read beyond the column
        Cells::neighbours(to[v], second, b[v] + at, b[v] + at + b_stride);
      else
        Cells::columns(to[v], second, b[v] + at, b[other] + at);
    }
  }
}

/// sums[r][v] += sum over `words` words, ascending, of those of row r of a * those of b[v][..][lane]. For each line that
/// is read, the one `ahead[v]` bytes behind it is prefetched.
template <class Cells, bool OfValues, int R, int V>
[[gnu::always_inline]] inline void accumulate(vec (&sums)[R][V], const float* a, std::size_t a_stride,
                                              const typename Cells::element* const (&b)[V], std::size_t b_stride,
                                              int words, const std::ptrdiff_t (&ahead)[V]) {
  constexpr int row_parity = V == 1 ? 0 : Cells::rows - 1; // neighbours are in the same lines
  for (std::size_t at = 0; words > 0; --words, at += Cells::rows * b_stride, a += Cells::weight_words) {
    typename Cells::operand columns[V];
    for (int v = 0; v < V; ++v) {
      const auto* column = reinterpret_cast<const char*>(b[v] + at) + ahead[v];
      __builtin_prefetch(column + (v & row_parity) * b_stride);
      if (OfValues && V < Cells::rows)
        __builtin_prefetch(column + b_stride);
    }
    load_columns<Cells, OfValues>(columns, b, at, b_stride);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        sums[r][v] = Cells::accumulate(sums[r][v], a + r * a_stride, columns[v]);
  }
}

/// Accumulates only the words of a block of V whose bits are set in `words`.
template <class Cells, int R, int V>
[[gnu::always_inline]] inline void accumulate_words(vec (&sums)[R][V], const float* a, std::size_t a_stride,
                                                    const typename Cells::element* const (&b)[V], std::size_t b_stride,
                                                    unsigned words) {
  for (; words != 0; words &= words - 1) {
    const int word = __builtin_ctz(words);
    typename Cells::operand columns[V];
    load_columns<Cells, true>(columns, b, std::size_t(word) * Cells::rows * b_stride, b_stride);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        sums[r][v] = Cells::accumulate(sums[r][v], a + r * a_stride + word * Cells::weight_words, columns[v]);
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
    : dim_(op.cache.head_dim), scratch_(scratch) {
    const vec scale = broadcast(query_scale(op));
    for (int i = 0; i < tile.count; ++i)
      for (int d = 0; d < dim_; d += lanes)
        Cells::put(scratch.q[i], d, load_some(tile.queries[i].q + d, dim_ - d) * scale);
  }

  /// Scores of the blocks [first, last), for some queries and all tokens.
  void score(const partition_blocks& blocks, query_span of, int first, int last) const {
    with_rows<most_queries>(of.count, [&]<int R>() {
      constexpr int V = vectors(R);
      int block = first;
      for (; block + V <= last; block += V)
        score_blocks<R, V>(blocks, of.first, block);
      for (; block < last; ++block)
        score_blocks<R, 1>(blocks, of.first, block);
    });
  }

  /// Overwrites scores with weights, which take no more room.
  void put_weights(float* p, int token, vec weights) const { Cells::put(p, token, weights); }

  /// o = weights * V over the blocks [first, last) for some queries, the first of which has its result at `o`; with
  /// `more`, o += that, as if the blocks followed those before in one sum. Lanes beyond the last dimension hold no
  /// result. Values that no query has a weight for would add exact zeros, and are not read. Returns their bytes.
  std::size_t weigh(const partition_blocks& blocks, query_span of, int first, int last, bool more, float* o,
                    std::size_t stride) const {
    const auto live = find_live(of, first, last, !blocks.fetches_values());
    if (!live.whole || !blocks.fetches_values())
      fetch_live(blocks, live, 0, partition_blocks::ahead);
    for (int i = 0; !live.whole && i < partition_blocks::ahead; ++i)
      blocks.next_keys(i).fetch();
    with_rows<most_queries>(of.count, [&]<int R>() {
      constexpr int V = vectors(R);
      int d = 0;
      for (; d + (V - 1) * lanes < dim_; d += V * lanes)
        weigh_dimensions<R, V>(blocks, live, of.first, first, last, more, o, stride, d);
      for (; d < dim_; d += lanes)
        weigh_dimensions<R, 1>(blocks, live, of.first, first, last, more, o, stride, d);
    });
    if (live.whole)
      return 0;
    return static_cast<std::size_t>(live.unread) * (blocks.value_bytes() / block_words);
  }

private:
  using element = typename Cells::element;

  static constexpr int block_words = block_size / Cells::steps;

  const float* weights(int query, int block) const {
    return scratch_.p[query] + block * block_words * Cells::weight_words;
  }

  /// `list`: also if few words are not needed.
  live_blocks find_live(query_span of, int first, int last, bool list) const {
    constexpr int in_block = block_words * Cells::weight_words;
    live_blocks live;
    alignas(64) std::uint32_t any[partition_size];
    for (int block = first; block < last; ++block) {
      std::uint32_t words[in_block] = {};
      for (int r = 0; r < of.count; ++r) {
        std::uint32_t row[in_block];
        std::memcpy(row, weights(of.first + r, block), sizeof row);
        for (int i = 0; i < in_block; ++i)
          words[i] |= row[i];
      }
      for (int i = 0; i < block_words; ++i) {
        any[block * block_words + i] = words[i * Cells::weight_words] | words[(i + 1) * Cells::weight_words - 1];
        live.unread += any[block * block_words + i] == 0;
      }
    }
    live.whole = live.unread * 8 < (last - first) * block_words; // the end of a text alone changes nothing
    for (int block = first; block < last && (list || !live.whole); ++block) {
      unsigned set = 0;
      for (int i = 0; i < block_words; ++i)
        set |= (any[block * block_words + i] != 0 ? 1u : 0u) << i;
      live.block[live.count] = static_cast<std::uint8_t>(block);
      live.words[live.count] = static_cast<std::uint16_t>(set);
      live.count += set != 0;
    }
    return live;
  }

  /// Prefetches the words of live blocks [first, end).
  void fetch_live(const partition_blocks& blocks, const live_blocks& live, int first, int end) const {
    const auto bytes = blocks.value_bytes() / block_words;
    for (int i = first; i < at_most(end, live.count); ++i)
      for (unsigned words = live.words[i]; words != 0; words &= words - 1)
        stretch{blocks.values(live.block[i]) + static_cast<std::size_t>(__builtin_ctz(words)) * bytes, bytes}.fetch();
  }

  static constexpr int vectors(int rows) {
    constexpr int tables = 8 * (Cells::rows - 1); // registers that widening needs
    return 4 * rows + tables <= most_sums ? 4 : 2 * rows <= most_sums ? 2 : 1;
  }

  template <int R, int V>
  void score_blocks(const partition_blocks& blocks, int query, int block) const {
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
    accumulate<Cells, false>(sums, scratch_.q[query], query_stride, k, block_size, dim_ / Cells::steps, ahead);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        store(&scratch_.p[query + r][(block + v) * block_size], sums[r][v]);
  }

  template <int R, int V>
  void weigh_dimensions(const partition_blocks& blocks, const live_blocks& live, int query, int first, int last,
                        bool more, float* o, std::size_t stride, int d) const {
    vec sums[R][V];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        sums[r][v] = more ? load(o + r * stride + d + v * lanes) : zero();
    for (int i = 0; !live.whole && i < live.count; ++i) {
      const auto* values = reinterpret_cast<const element*>(blocks.values(live.block[i])) + d;
      const element* columns[V];
      for (int v = 0; v < V; ++v)
        columns[v] = values + v * lanes;
      if (d == 0)
        fetch_live(blocks, live, i + partition_blocks::ahead, i + partition_blocks::ahead + 1);
      accumulate_words<Cells>(sums, weights(query, live.block[i]), row_stride, columns, static_cast<std::size_t>(dim_),
                              live.words[i]);
    }
    for (int block = first; live.whole && block < last; ++block) {
      const auto* values = reinterpret_cast<const element*>(blocks.values(block));
      const element* columns[V];
      std::ptrdiff_t ahead[V];
      for (int v = 0; v < V; ++v) {
        columns[v] = values + d + v * lanes;
        ahead[v] = distance(values, blocks.after_values(block));
      }
      accumulate<Cells, true>(sums, weights(query, block), row_stride, columns, static_cast<std::size_t>(dim_),
                              block_words, ahead);
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        store(o + r * stride + d + v * lanes, sums[r][v]);
  }

  /// Bytes from the line being read to the one to prefetch; 0 if there is none.
  static std::ptrdiff_t distance(const element* from, const stretch& to) {
    return to.data == nullptr ? 0 : to.data - reinterpret_cast<const char*>(from);
  }

  int dim_;
  tile_scratch& scratch_;
};

} // namespace
} // namespace troupe::kernels
