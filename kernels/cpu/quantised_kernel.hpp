// Linear layers with quantised weights and activations. Per group of 32 inputs: exact integer dots, one rounding for
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

/// Codes as dots take them. `Wide` ones have 8 bits and 128 for weight 0.
template <bool Wide>
inline auto prepare(ivec codes) {
  if constexpr (Wide)
    return prepare_wide(codes);
  else
    return codes;
}

/// The scales of V vectors of a group, for each part, and the minima.
template <weight_kind Kind, int V>
struct group_scales {
  static constexpr auto layout = layout_of(Kind);
  scale value[layout.parts][V];
  vec minimum[V];

  group_scales(const unsigned char* header, const unsigned char* group, std::size_t vector) {
    constexpr std::size_t n = quantised_panel_outputs;
    const auto* scales = reinterpret_cast<const std::uint16_t*>(layout.super ? header : group + layout.code_bytes);
    const auto* factors = reinterpret_cast<const std::int8_t*>(group + layout.code_bytes);
    for (int v = 0; v < V; ++v) {
      const std::size_t column = (vector + v) * lanes;
      const vec d = load_f16(scales + column);
      for (int part = 0; part < layout.parts; ++part)
        value[part][v] = make_scale(layout.super ? d * load_bytes(factors + part * n + column) : d);
      if constexpr (layout.minimum) {
        const vec m = load_f16(scales + n + column);
        minimum[v] = layout.super ? m * load_bytes(factors + n + column) : m;
      }
    }
  }
};

/// R rows times V vectors of a panel from vector `vector` on, over `groups` groups.
template <weight_kind Kind, int R, int V>
inline void accumulate_groups(float* c, bool fresh, const std::uint32_t* rows, const unsigned char* weights,
                              std::size_t vector, std::size_t groups) {
  constexpr auto layout = layout_of(Kind);
  constexpr bool wide = layout.zero == 128;
  constexpr int per_line = 8 / layout.code_bits; // vectors of codes
  constexpr int lines = 8 / per_line / layout.parts;
  constexpr std::size_t row_stride = group_block * activation_record;
  constexpr std::size_t c_stride = quantised_panel_outputs;
  vec sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sums[r][v] = fresh ? zero() : load(c + r * c_stride + v * lanes);
  const unsigned char* header = weights;
  for (std::size_t group = 0; group < groups; ++group, weights += layout.group_bytes, rows += activation_record) {
    if (layout.super && group % super_groups == 0) {
      header = weights;
      weights += layout.header_bytes;
    }
#pragma GCC unroll 2
    for (int part = 0; part < layout.parts; ++part) {
      ivec dots[R][V];
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v)
          dots[r][v] = broadcast_word(rows + r * row_stride + 9 + part);
#pragma GCC unroll 8
      for (int line = part * lines; line < (part + 1) * lines; ++line) {
        ivec stored[V];
        for (int v = 0; v < V; ++v)
          stored[v] = load_ints(weights + (line * quantised_vectors + vector + v) * 64);
#pragma GCC unroll 2
        for (int half = 0; half < per_line; ++half) {
          decltype(prepare<wide>(stored[0])) codes[V];
          for (int v = 0; v < V; ++v)
            codes[v] = prepare<wide>(per_line == 1 ? stored[v]
                                     : half == 0   ? low_halves(stored[v])
                                                   : high_halves(stored[v]));
          for (int r = 0; r < R; ++r) {
            const auto x = broadcast_word(rows + r * row_stride + line + 4 * half);
            for (int v = 0; v < V; ++v)
              dots[r][v] = dot(dots[r][v], codes[v], x);
          }
        }
      }
      const group_scales<Kind, V> scales(header, weights, vector);
      for (int r = 0; r < R; ++r) {
        const vec x = f32_operand::row(rows + r * row_stride + 8);
        for (int v = 0; v < V; ++v)
          sums[r][v] = fma(scaled(dots[r][v], scales.value[part][v]), x, sums[r][v]);
        if constexpr (layout.minimum) {
          const vec sum = f32_operand::row(rows + r * row_stride + 11);
          for (int v = 0; v < V; ++v)
            sums[r][v] = fma(scales.minimum[v], sum, sums[r][v]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store(c + r * c_stride + v * lanes, sums[r][v]);
}

/// Blocks of K outside, then panels, row tiles inside: a panel's block stays in L1 for all rows. Leaves the sums as
/// [panels][rows][32].
template <weight_kind Kind>
void accumulate_quantised(const linear_op& op, const linear_task& task, float* scratch) {
  constexpr auto layout = layout_of(Kind);
  const auto* weights = static_cast<const unsigned char*>(op.weights);
  const std::size_t first_row = first_row_of(op, task.first_tile);
  const std::size_t panel_sums = (first_row_of(op, task.first_tile + task.tiles) - first_row) * quantised_panel_outputs;
  for (std::size_t k = 0; k < op.words; k += group_block) {
    const std::size_t groups = op.words - k < group_block ? op.words - k : group_block;
    const auto* activations = op.activations + k / group_block * op.activation_block;
    for (std::size_t panel = 0; panel < task.panels; ++panel) {
      const auto* block = weights + (task.first_panel + panel) * layout.bytes(op.words) + layout.bytes(k);
      for (std::size_t tile = task.first_tile; tile < task.first_tile + task.tiles; ++tile) {
        const std::size_t row = first_row_of(op, tile);
        const auto* rows = activations + row * group_block * activation_record;
        float* c = scratch + panel * panel_sums + (row - first_row) * quantised_panel_outputs;
        with_rows<quantised_tile_rows>(static_cast<int>(first_row_of(op, tile + 1) - row), [&]<int R>() {
          for (int v = 0; v < quantised_vectors; v += quantised_tile_vectors)
            accumulate_groups<Kind, R, quantised_tile_vectors>(c + v * lanes, k == 0, rows, block, v, groups);
        });
      }
    }
  }
}

/// One group of activations: scale = largest magnitude / 127, codes to nearest even. What is not finite makes the scale
/// infinite or NaN, and so the products.
inline void quantise_group(std::uint32_t* to, const float* from, int parts, int zero_code) {
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
  for (std::size_t half = 0; half < 2; ++half) {
    std::int32_t sum = 0; // a local, so that the loop becomes vectors
    for (std::size_t i = half * 16; i < half * 16 + 16; ++i) {
      const float rounded = from[i] * inverse + magic; // the integer is in the low bits
      std::uint32_t bits;
      std::memcpy(&bits, &rounded, 4);
      codes[i] = static_cast<std::int8_t>(bits);
      sum += codes[i];
    }
    halves[half] = sum;
  }
  std::memcpy(to, codes, sizeof codes);
  std::memcpy(to + 8, &scale, 4);
  const std::int32_t sum = halves[0] + halves[1];
  const float scaled_sum = scale * static_cast<float>(sum);
  to[9] = magic_bits - static_cast<std::uint32_t>(zero_code * (parts == 1 ? sum : halves[0]));
  to[10] = magic_bits - static_cast<std::uint32_t>(zero_code * halves[1]);
  std::memcpy(to + 11, &scaled_sum, 4);
}

void quantise(weight_kind kind, std::uint32_t* to, const float* from, std::size_t groups) {
  const auto layout = layout_of(kind);
  const int zero_code = wide_codes_are_signed && layout.zero == 128 ? 0 : layout.zero;
  for (std::size_t group = 0; group < groups; ++group)
    quantise_group(to + group * activation_record, from + group * 32, layout.parts, zero_code);
}

} // namespace
} // namespace troupe::kernels
