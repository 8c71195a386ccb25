// The common inner loop: a register tile of R rows by V vectors of 16 columns, accumulated over k in ascending order. A
// column never leaves its lane and k is never split, so the bits do not depend on R or V. Only for the target units.
#pragma once

#include "kernels/cpu/isa/simd.hpp"
#include "kernels/cpu/target.hpp"

namespace troupe::kernels {
namespace {

// Operands: how to load 16 columns of b, broadcast one word of a, and add their product.

struct f32_operand {
  using element = float;
  static constexpr bool in_f32 = true; // products of exactly widened weights
  static vec column(const element* p) { return load(p); }
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

#if defined(TROUPE_PAIRS)

/// Pairs of bf16, rounded as the target's instruction does.
struct pair_operand {
  using element = std::uint32_t;
  static constexpr bool in_f32 = false;
  static pairs16 column(const element* p) { return load_pairs(p); }
  static pairs16 row(const std::uint32_t* p) { return broadcast_pair(p); }
  static vec accumulate(vec c, pairs16 a, pairs16 b) { return add_pairs_of(c, a, b); }
};

#endif

/// c[r * c_stride + v * 16 + lane] += sum over k < count, ascending, of a[r * a_stride + k] * columns(k, v)[lane].
/// `fresh`: c starts at 0. Always inlined, so that strides, mostly constants, cost no registers.
template <class Operand, int R, int V, class Columns>
[[gnu::always_inline]] inline void accumulate_tile(float* c, std::size_t c_stride, bool fresh, const std::uint32_t* a,
                                                   std::size_t a_stride, std::size_t count, const Columns& columns) {
  vec sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sums[r][v] = fresh ? zero() : load(c + r * c_stride + v * lanes);
  for (std::size_t k = 0; k < count; ++k) {
    decltype(Operand::column(nullptr)) b[V];
    for (int v = 0; v < V; ++v)
      b[v] = columns(k, v);
    for (int r = 0; r < R; ++r) {
      const auto x = Operand::row(a + r * a_stride + k);
      for (int v = 0; v < V; ++v)
        sums[r][v] = Operand::accumulate(sums[r][v], x, b[v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store(c + r * c_stride + v * lanes, sums[r][v]);
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
