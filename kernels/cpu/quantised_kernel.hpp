// Linear layers with quantised weights and activations. Per group of 32 inputs: exact integer dots, then one rounding for
// the product with the weights' scale and one for the sum, in ascending order of the groups; rows, tiles and threads
// cannot change a bit. Only for the target units.
#pragma once

#include "kernels/cpu/int_simd.hpp"
#include "kernels/cpu/tile.hpp"

namespace troupe::kernels {
namespace {

inline constexpr int quantised_vectors = 2; // of a panel

// Rows and vectors of a tile: integer and float sums stay in registers.
#if defined(__AVX512F__)
inline constexpr int quantised_tile_rows = 6;
inline constexpr int quantised_tile_vectors = 2;
#else
inline constexpr int quantised_tile_rows = 3;
inline constexpr int quantised_tile_vectors = 1;
#endif

/// R rows times V vectors of a panel, over `groups` groups. `weights`: the first group's first vector.
template <weight_kind Kind, int R, int V>
inline void accumulate_groups(float* c, std::size_t c_stride, bool fresh, const std::uint32_t* rows,
                              const unsigned char* weights, std::size_t vector, std::size_t groups) {
  constexpr auto layout = layout_of(Kind);
  constexpr std::size_t row_stride = group_block * activation_record;
  vec sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sums[r][v] = fresh ? zero() : load(c + r * c_stride + v * lanes);
  for (std::size_t group = 0; group < groups; ++group, weights += layout.group_bytes, rows += activation_record) {
    ivec dots[R][V];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        dots[r][v] = broadcast_word(rows + r * row_stride + 9);
#pragma GCC unroll 8
    for (int word = 0; word < 8; ++word) {
      wide_codes codes[V];
      for (int v = 0; v < V; ++v)
        codes[v] = prepare_wide(load_ints(weights + (word * quantised_vectors + vector + v) * 64));
      for (int r = 0; r < R; ++r) {
        const auto x = broadcast_word(rows + r * row_stride + word);
        for (int v = 0; v < V; ++v)
          dots[r][v] = dot(dots[r][v], codes[v], x);
      }
    }
    const auto* stored = reinterpret_cast<const std::uint16_t*>(weights + layout.code_bytes);
    scale scales[V];
    for (int v = 0; v < V; ++v)
      scales[v] = make_scale(load_f16(stored + (vector + v) * lanes));
    for (int r = 0; r < R; ++r) {
      const vec x = f32_operand::row(rows + r * row_stride + 8);
      for (int v = 0; v < V; ++v)
        sums[r][v] = fma(scaled(dots[r][v], scales[v]), x, sums[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store(c + r * c_stride + v * lanes, sums[r][v]);
}

/// Blocks of K outside, then panels, row tiles inside: a panel's block stays in L1 for all rows.
template <weight_kind Kind>
void accumulate_quantised(const linear_op& op, const linear_task& task, float* scratch) {
  constexpr auto layout = layout_of(Kind);
  const auto* weights = static_cast<const unsigned char*>(op.weights);
  const std::size_t first_row = first_row_of(op, task.first_tile);
  const std::size_t c_stride = task.panels * quantised_panel_outputs;
  for (std::size_t k = 0; k < op.words; k += group_block) {
    const std::size_t groups = op.words - k < group_block ? op.words - k : group_block;
    const auto* activations = op.activations + k / group_block * op.activation_block;
    for (std::size_t panel = 0; panel < task.panels; ++panel) {
      const auto* block = weights + ((task.first_panel + panel) * op.words + k) * layout.group_bytes;
      for (std::size_t tile = task.first_tile; tile < task.first_tile + task.tiles; ++tile) {
        const std::size_t row = first_row_of(op, tile);
        const auto* rows = activations + row * group_block * activation_record;
        float* c = scratch + (row - first_row) * c_stride + panel * quantised_panel_outputs;
        with_rows<quantised_tile_rows>(static_cast<int>(first_row_of(op, tile + 1) - row), [&]<int R>() {
          for (int v = 0; v < quantised_vectors; v += quantised_tile_vectors)
            accumulate_groups<Kind, R, quantised_tile_vectors>(c + v * lanes, c_stride, k == 0, rows, block, v, groups);
        });
      }
    }
  }
}

/// One group of activations: scale = largest magnitude / 127, codes to nearest even. What is not finite makes the scale
/// infinite or NaN, and so the products.
inline void quantise_group(std::uint32_t* to, const float* from, int zero_code) {
  std::uint32_t largest = 0; // as bits, where NaN is above all
  for (std::size_t i = 0; i < 32; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    bits &= 0x7fffffff;
    largest = largest > bits ? largest : bits;
  }
  float most;
  std::memcpy(&most, &largest, 4);
  if (most < 1e-30f) // its inverse would overflow
    most = 0;
  const float scale = most / 127;
  const float inverse = most > 0 ? 127 / most : 0;
  std::int8_t codes[32];
  std::int32_t halves[2] = {};
  for (std::size_t i = 0; i < 32; ++i) {
    const float rounded = from[i] * inverse + magic; // the integer is in the low bits
    std::uint32_t bits;
    std::memcpy(&bits, &rounded, 4);
    codes[i] = static_cast<std::int8_t>(bits);
    halves[i / 16] += codes[i];
  }
  std::memcpy(to, codes, sizeof codes);
  std::memcpy(to + 8, &scale, 4);
  to[9] = magic_bits - static_cast<std::uint32_t>(zero_code * (halves[0] + halves[1]));
}

void quantise(weight_kind kind, std::uint32_t* to, const float* from, std::size_t groups) {
  const auto layout = layout_of(kind);
  const int zero_code = wide_codes_are_signed && layout.code_bits == 8 ? layout.zero - 128 : layout.zero;
  for (std::size_t group = 0; group < groups; ++group)
    quantise_group(to + group * activation_record, from + group * 32, zero_code);
}

} // namespace
} // namespace troupe::kernels
