// Loads a lane's share of a tile of 16 outputs over a chunk of 128 inputs, and converts it to operands of the tensor
// cores: bf16 as stored, codes as integers, which are exact in bf16. Scales apply to the sums. See weights.hpp for the
// layouts. Only for kernels.
#pragma once

#include "kernels/cuda/device/code_pairs.hpp"
#include "kernels/cuda/device/linear/linear.hpp"

#include <type_traits>

namespace troupe::kernels::cuda {

/// The first operand for both steps of a group.
struct group_operand {
  std::uint32_t step[2][4];
};

/// A lane's share of a chunk, which can be loaded while another chunk is multiplied.
template <weight_kind Kind>
struct weight_chunk {
  static constexpr scale_layout layout = layout_of(Kind).scales;
  static constexpr int bits = layout_of(Kind).code_bits;
  static constexpr bool has_minimum = layout == scale_layout::with_minima || layout == scale_layout::factors_and_minima;
  static constexpr bool scale_per_step = layout == scale_layout::factors_and_halves;
  static constexpr bool has_factors = layout == scale_layout::factors_and_minima || scale_per_step;
  static constexpr std::size_t scale_bytes = chunk_scale_bytes(Kind);
  static constexpr int scale_words = static_cast<int>(scale_bytes) / tile_outputs / 4;
  static constexpr int code_words = 2 * bits, code_units = code_words / 4; // a unit: four words
  static constexpr bool has_rest = code_words % 4 != 0;                    // two words
  struct nothing {};

  words4 codes[code_units];
  [[no_unique_address]] std::conditional_t<has_rest, words2, nothing> rest;
  std::uint32_t scales[2][scale_words]; // for the lane's two outputs

  /// Where a lane loads a tile from; made once, so that a chunk's addresses are one instruction each.
  struct source {
    const char *codes, *rest, *factors, *scales;

    TROUPE_DEVICE source(const linear_params& p, std::size_t tile) {
      const char* all = static_cast<const char*>(p.codes) + tile * p.chunks * chunk_code_bytes(Kind);
      codes = all + simt::lane() * sizeof(words4);
      rest = all + code_units * warp_lanes * sizeof(words4) + simt::lane() * sizeof(words2);
      factors = static_cast<const char*>(p.scales) + tile * p.chunks * scale_bytes + simt::lane() / 4 * 4;
      scales = factors + simt::lane() / 4 * (4 * scale_stride - 4) + (has_factors ? 4 * tile_outputs : 0);
    }
  };
  static constexpr int scale_stride = has_factors ? 2 : scale_words; // of a row, in words

  TROUPE_DEVICE void load(const source& from, std::size_t chunk) {
    const std::size_t code_place = chunk * chunk_code_bytes(Kind), place = chunk * scale_bytes;
    for (int i = 0; i < code_units; ++i)
      codes[i] = simt::load_streamed(from.codes + code_place + i * warp_lanes * sizeof(words4));
    if constexpr (has_rest)
      rest = *reinterpret_cast<const words2*>(from.rest + code_place);
    for (int half = 0; half < 2; ++half) {
      const char* row = from.scales + place + 32 * scale_stride * half;
      if constexpr (scale_stride == 2) {
        const words2 both = *reinterpret_cast<const words2*>(row);
        scales[half][scale_words - 2] = both.x, scales[half][scale_words - 1] = both.y;
      } else {
        const words4 all = *reinterpret_cast<const words4*>(row);
        scales[half][0] = all.x, scales[half][1] = all.y, scales[half][2] = all.z, scales[half][3] = all.w;
      }
      if constexpr (has_factors)
        scales[half][0] = *reinterpret_cast<const std::uint32_t*>(from.factors + place + 32 * half);
    }
  }

  /// Operands of a group. `group` must be the constant of an unrolled loop.
  TROUPE_DEVICE void operand(int group, group_operand& to) const {
    for (int half = 0; half < 2; ++half)
      for (int step = 0; step < 2; ++step)
        for (int pair = 0; pair < 2; ++pair)
          to.step[step][2 * pair + half] = bits == 8 ? int8_pair(word(8 * half + 2 * group + step), pair)
                                                     : pair_of(half, 4 * group + 2 * step + pair);
  }

  /// Word `index` of the lane's codes.
  TROUPE_DEVICE std::uint32_t word(int index) const {
    if constexpr (has_rest)
      if (index >= 4 * code_units)
        return index % 2 == 0 ? rest.x : rest.y;
    return word_of(codes[index / 4], index % 4);
  }

  /// The 16 pairs of an output's codes of less than 8 bits. bf16 0x4300 is 128 and its last bit is worth 1: inserts the
  /// codes there, then subtracts 128 and their zero.
  TROUPE_DEVICE std::uint32_t pair_of(int half, int pair) const {
    constexpr std::uint32_t base = 0x43004300u, ones = 0x00010001u, zero = base + layout_of(Kind).zero * ones;
    std::uint32_t with_code = base;
    if constexpr (bits == 4) {
      with_code = simt::insert_bits(word(4 * half + pair / 4) >> pair % 4 * 4, 15 * ones, base);
    } else if constexpr (bits == 6) {
      const int first = 6 * half + pair / 8 * 3, j = pair % 8;
      if (j < 6)
        with_code = simt::insert_bits(word(first + j / 2) >> j % 2 * 6, 63 * ones, base);
      else
        with_code = simt::insert_bits(word(first + 2) >> (j == 6 ? 8 : 10), 48 * ones,
                                      simt::insert_bits(word(first + j - 6) >> 12, 15 * ones, base));
    } else {
      const int first = 5 * half;
      if (pair < 15)
        with_code = simt::insert_bits(word(first + pair / 3) >> pair % 3 * 5, 31 * ones, base);
      else
#pragma unroll
        for (int i = 0; i < 5; ++i)
          with_code = simt::insert_bits(word(first + i) >> (15 - i), ones << i, with_code);
    }
    return simt::subtract_bf16_pair(with_code, zero);
  }

  /// A byte, without a conversion, which GPUs do at a quarter of the rate: signed, or up to 127.
  TROUPE_DEVICE static float signed_byte(std::uint32_t word, int index) {
    const std::uint32_t pair = int8_pair(word, index % 2);
    return index < 2 ? first_of(pair) : second_of(pair);
  }
  TROUPE_DEVICE static float small_byte(std::uint32_t word, int index) {
    constexpr std::uint32_t base = 0x43004300u;
    const std::uint32_t pair = simt::subtract_bf16_pair(simt::insert_bits(word >> index % 2 * 8, 0x007f007fu, base),
                                                        base);
    return index < 2 ? first_of(pair) : second_of(pair);
  }

  TROUPE_DEVICE static float half_of(std::uint32_t word, int index) {
    return simt::f16_to_float(static_cast<std::uint16_t>(word >> 16 * index));
  }

  TROUPE_DEVICE float scale(int half, int group, int step) const {
    const auto& s = scales[half];
    if constexpr (scale_per_step)
      return half_of(s[0], 0) * signed_byte(s[1 + group / 2], group % 2 * 2 + step);
    else if constexpr (has_factors)
      return half_of(s[0], 0) * small_byte(s[1], group);
    else if constexpr (has_minimum)
      return half_of(s[group % scale_words], 0);
    else
      return half_of(s[group / 2 % scale_words], group % 2);
  }

  TROUPE_DEVICE float minimum(int half, int group) const {
    const auto& s = scales[half];
    if constexpr (has_factors)
      return half_of(s[0], 1) * small_byte(s[2], group);
    else
      return half_of(s[group % scale_words], 1);
  }
};

/// Rows: 8 inputs of two outputs at a time. Rows may end within the last chunk, unless `Whole`.
template <>
struct weight_chunk<weight_kind::bf16> {
  words4 w[chunk_groups][2];

  template <bool Whole = false>
  TROUPE_DEVICE void load(const linear_params& p, std::size_t tile, std::size_t chunk) {
    const std::size_t row = tile * tile_outputs + simt::lane() / 4, first = chunk * chunk_inputs;
    const auto* from = static_cast<const std::uint16_t*>(p.codes) + row * p.stride + first + 8 * (simt::lane() % 4);
#pragma unroll
    for (int group = 0; group < chunk_groups; ++group)
      if (Whole || first + 32 * group < p.stride)
        for (int half = 0; half < 2; ++half)
          w[group][half] = simt::load_streamed(from + 8 * half * p.stride + 32 * group);
  }
};

/// Rows: 16 inputs of two outputs at a time.
template <>
struct weight_chunk<weight_kind::fp8> {
  static constexpr int halves = chunk_inputs / 64;
  words4 w[halves][2];

  template <bool Whole = false>
  TROUPE_DEVICE void load(const linear_params& p, std::size_t tile, std::size_t chunk) {
    const std::size_t row = tile * tile_outputs + simt::lane() / 4;
    const auto* from = static_cast<const std::uint8_t*>(p.codes) + row * p.stride + chunk * chunk_inputs +
      16 * (simt::lane() % 4);
#pragma unroll
    for (int i = 0; i < halves; ++i)
      for (int half = 0; half < 2; ++half)
        w[i][half] = simt::load_streamed(from + 8 * half * p.stride + 64 * i);
  }
};

} // namespace troupe::kernels::cuda
