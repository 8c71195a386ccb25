// The common inner loop: a register tile of R rows by V vectors of 16 columns, accumulated over k in ascending order. A
// column never leaves its lane and k is never split, so the bits do not depend on R or V. Only for the target units.
#pragma once

#include "kernels/cpu/isa/code_pairs.hpp"
#include "kernels/cpu/isa/int_simd.hpp"
#include "kernels/cpu/target.hpp"

namespace troupe::kernels {
namespace {

// Operands: how to load 16 columns of b, broadcast one word of a, and add their product. If it `widens`, columns are
// widened once for several row tiles, to those of the operand `wide`.

struct f32_operand {
  using element = float;
  using vector = vec;
  using wide = f32_operand;
  static constexpr bool widens = true;
  static constexpr std::size_t header_bytes = 0; // of a panel
  static vec column(const element* p) { return load(p); }
  static void keep(element* p, vec x) { store(p, x); }
  static vec row(const std::uint32_t* p) {
    float x;
    std::memcpy(&x, p, 4);
    return broadcast(x);
  }
  static vec accumulate(vec c, vec a, vec b) { return fma(a, b, c); }
};

struct f16_operand : f32_operand {
  using element = std::uint16_t;
  static vec column(const element* p) { return load_f16(p); }
};

struct bf16_operand : f32_operand {
  using element = std::uint16_t;
  static vec column(const element* p) { return load_bf16(p); }
};

/// Weights in bf16, two vectors in 16 words: with AVX-512 a shift and a mask take half of the ports that a conversion
/// takes.
struct bf16_half_operand : f32_operand {
  using element = std::uint16_t;
  static void columns(vec& first, vec& second, const element* p) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(p);
    first = even_bf16(words);
    second = odd_bf16(words);
  }
};

#if defined(TROUPE_PAIRS)

/// Pairs of bf16, rounded as the target's instruction does.
struct pair_operand {
  using element = std::uint32_t;
  using vector = pairs16;
  static constexpr bool widens = false;
  static constexpr std::size_t header_bytes = 0;
  static pairs16 column(const element* p) { return load_pairs(p); }
#if defined(__AVX512BF16__)
  static void keep(element* p, pairs16 x) { _mm512_storeu_si512(p, x); }
#endif
  static pairs16 row(const std::uint32_t* p) { return broadcast_pair(p); }
  static vec accumulate(vec c, pairs16 a, pairs16 b) { return add_pairs_of(c, a, b); }
};

#endif

/// Codes of E4M3 in their unit; the sums are scaled when they are stored.
struct fp8_operand : f32_operand {
  using element = std::int8_t;
  static constexpr std::size_t header_bytes = fp8_scale_bytes;
  static vec column(const element* p) { return load_e4m3(p); }
};

#if defined(__AVX512BF16__)

/// Codes of E4M3 in pairs, which become pairs of bf16: 32 outputs at a time.
struct fp8_pair_operand : pair_operand {
  using element = std::uint16_t; // of an output
  using wide = pair_operand;
  static constexpr bool widens = true;
  static constexpr std::size_t header_bytes = fp8_scale_bytes;
  static void columns(pairs16& first, pairs16& second, const element* p) {
    const auto [low, high] = widened_codes<true>(_mm512_loadu_si512(p));
    first = _mm512_unpacklo_epi8(low, high);
    second = _mm512_unpackhi_epi8(low, high);
  }
};

#endif

/// Loads V vectors of columns of b.
template <class Operand, int V>
[[gnu::always_inline]] inline void read_columns(typename Operand::vector (&to)[V],
                                                const typename Operand::element* from) {
  if constexpr (requires { &Operand::columns; }) {
    static_assert(V % 2 == 0);
    for (int v = 0; v < V; v += 2)
      Operand::columns(to[v], to[v + 1], from + v * lanes);
  } else {
    for (int v = 0; v < V; ++v)
      to[v] = Operand::column(from + v * lanes);
  }
}

/// sums[r][v] += sum over k < count, ascending, of a[r * a_stride + k] * b[v], where `columns(k, b)` loads b[V].
template <class Operand, int R, int V, class Columns>
[[gnu::always_inline]] inline void add_products(vec (&sums)[R][V], const std::uint32_t* a, std::size_t a_stride,
                                                std::size_t count, const Columns& columns) {
  for (std::size_t k = 0; k < count; ++k) {
    typename Operand::vector b[V];
    columns(k, b);
    for (int r = 0; r < R; ++r) {
      const auto x = Operand::row(a + r * a_stride + k);
      for (int v = 0; v < V; ++v)
        sums[r][v] = Operand::accumulate(sums[r][v], x, b[v]);
    }
  }
}

/// c[r * c_stride + v * 16 + lane] += those sums. `fresh`: c starts at 0. Always inlined, so that strides, mostly
/// constants, cost no registers.
template <class Operand, int R, int V, class Columns>
[[gnu::always_inline]] inline void accumulate_tile(float* c, std::size_t c_stride, bool fresh, const std::uint32_t* a,
                                                   std::size_t a_stride, std::size_t count, const Columns& columns) {
  vec sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sums[r][v] = fresh ? zero() : load(c + r * c_stride + v * lanes);
  add_products<Operand>(sums, a, a_stride, count, columns);
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store(c + r * c_stride + v * lanes, sums[r][v]);
}

/// The same with sums that start at 0 and are multiplied by scales[v * 16 + lane], and by the unit of codes of fp8, before
/// they are added to c.
template <class Operand, int R, int V, class Columns>
[[gnu::always_inline]] inline void accumulate_scaled_tile(float* c, std::size_t c_stride, bool fresh,
                                                          const float* scales, const std::uint32_t* a,
                                                          std::size_t a_stride, std::size_t count,
                                                          const Columns& columns) {
  vec sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sums[r][v] = zero();
  add_products<Operand>(sums, a, a_stride, count, columns);
  for (int v = 0; v < V; ++v) {
    const vec scale = load(scales + v * lanes);
    for (int r = 0; r < R; ++r) {
      float* to = c + r * c_stride + v * lanes;
      store(to, fma(sums[r][v] * broadcast(fp8_unit), scale, fresh ? zero() : load(to)));
    }
  }
}

// The most rows of a tile, and its vectors for a number of rows, as the target's registers allow. Fewer rows take more
// vectors, because more sums in flight hide latency better.
#if defined(__AVX512F__) || (defined(TROUPE_SVE) && __ARM_FEATURE_SVE_BITS == 512)
inline constexpr int tile_rows = 12;
constexpr int tile_vectors(int rows) { return 2 * rows <= tile_rows ? 4 : 2; }
#elif defined(TROUPE_SVE) && __ARM_FEATURE_SVE_BITS == 256
inline constexpr int tile_rows = 6;
constexpr int tile_vectors(int rows) { return rows == 1 ? 4 : 2; }
#elif defined(__AVX2__) || defined(TROUPE_NEON) || defined(TROUPE_SVE)
inline constexpr int tile_rows = 6;
constexpr int tile_vectors(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
#else
inline constexpr int tile_rows = 3;
constexpr int tile_vectors(int rows) { return rows == 1 ? 2 : 1; }
#endif

/// The most rows of a tile that takes this many vectors.
constexpr int rows_of_vectors(int vectors) {
  int rows = tile_rows;
  while (tile_vectors(rows) != vectors)
    --rows;
  return rows;
}

inline std::size_t first_row_of(const linear_op& op, std::size_t tile) {
  return tile < op.row_tiles ? tile * op.tile_rows : op.rows;
}

/// Calls f.template operator()<R>() with R = rows, 1 <= rows <= the first R.
template <int R = tile_rows, class F>
inline void with_rows(int rows, const F& f) {
  if constexpr (R > 1)
    if (rows < R)
      return with_rows<R - 1>(rows, f);
  f.template operator()<R>();
}

} // namespace
} // namespace troupe::kernels
