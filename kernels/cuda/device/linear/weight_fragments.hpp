// Loads a lane's share of a tile of 16 outputs over a chunk of 128 inputs, and converts it to operands of the tensor
// cores: bf16 as stored, codes as integers, which are exact in bf16. Scales apply to the sums. See weights.hpp for the
// layouts. Only for kernels.
#pragma once

#include "kernels/cuda/device/code_pairs.hpp"
#include "kernels/cuda/device/linear/linear.hpp"

namespace troupe::kernels::cuda {

/// The first operand for both steps of a group.
struct group_operand {
  std::uint32_t step[2][4];
};

/// A lane's share of a chunk, which can be loaded while another chunk is multiplied.
template <weight_kind Kind>
struct weight_chunk {
  static constexpr scale_layout layout = layout_of(Kind).scales;
  static constexpr bool four_bits = layout_of(Kind).code_bits == 4;
  static constexpr bool has_minimum = layout == scale_layout::with_minima || layout == scale_layout::factors_and_minima;
  static constexpr bool scale_per_step = layout == scale_layout::factors_and_halves;
  static constexpr bool has_factors = layout == scale_layout::factors_and_minima || scale_per_step;
  static constexpr std::size_t scale_bytes = chunk_scale_bytes(Kind);
  static constexpr int scale_words = static_cast<int>(scale_bytes) / tile_outputs / 4;
  static constexpr int code_units = four_bits ? 2 : 4;

  words4 codes[code_units];
  std::uint32_t scales[2][scale_words]; // for the lane's two outputs

  template <bool Whole = false>
  TROUPE_DEVICE void load(const linear_params& p, std::size_t tile, std::size_t chunk) {
    const std::size_t at = tile * p.chunks + chunk;
    const auto* from = static_cast<const words4*>(p.codes) + at * code_units * warp_lanes;
    for (int i = 0; i < code_units; ++i)
      codes[i] = simt::load_streamed(from + i * static_cast<int>(warp_lanes) + simt::lane());
    const auto* words = reinterpret_cast<const std::uint32_t*>(static_cast<const char*>(p.scales) + at * scale_bytes);
    for (int half = 0; half < 2; ++half) {
      const unsigned row = simt::lane() / 4 + 8 * half;
      if constexpr (has_factors)
        for (int i = 0; i < scale_words; ++i)
          scales[half][i] = words[i * tile_outputs + row];
      else if constexpr (scale_words == 2) {
        const words2 both = reinterpret_cast<const words2*>(words)[row];
        scales[half][0] = both.x, scales[half][1] = both.y;
      } else {
        const words4 all = reinterpret_cast<const words4*>(words)[row];
        scales[half][0] = all.x, scales[half][1] = all.y, scales[half][2] = all.z, scales[half][3] = all.w;
      }
    }
  }

  /// Operands of a group. `group` must be the constant of an unrolled loop.
  TROUPE_DEVICE void operand(int group, group_operand& to) const {
    for (int half = 0; half < 2; ++half)
      for (int step = 0; step < 2; ++step)
        for (int pair = 0; pair < 2; ++pair)
          to.step[step][2 * pair + half] = four_bits ? four_bit_pair(word_of(codes[half], group), 2 * step + pair)
                                                     : int8_pair(eight_bit_word(half, group, step), pair);
  }

  TROUPE_DEVICE std::uint32_t eight_bit_word(int half, int group, int step) const {
    return word_of(codes[four_bits ? 0 : 2 * half + group / 2], group % 2 * 2 + step);
  }

  /// bf16 0x4300 is 128 and its last bit is worth 1: inserts the code there, then subtracts 128 (q4: 136).
  TROUPE_DEVICE static std::uint32_t four_bit_pair(std::uint32_t word, int pair) {
    constexpr std::uint32_t zero = Kind == weight_kind::q4 ? 0x43084308u : 0x43004300u;
    return simt::subtract_bf16_pair((word >> 4 * pair & 0x000f000fu) | 0x43004300u, zero);
  }

  /// A signed byte, without a conversion, which GPUs do at a quarter of the rate: the byte + 128 becomes the last byte
  /// of 2^23.
  TROUPE_DEVICE static float byte_of(std::uint32_t word, int index) {
    const std::uint32_t bits = simt::permute(word ^ 0x80808080u, 0x4b000000u, 0x7650u | static_cast<unsigned>(index));
    return simt::sub(simt::bits_to_float(bits), 0x1p23f + 128);
  }

  TROUPE_DEVICE static float half_of(std::uint32_t word, int index) {
    return simt::f16_to_float(static_cast<std::uint16_t>(word >> 16 * index));
  }

  TROUPE_DEVICE float scale(int half, int group, int step) const {
    const auto& s = scales[half];
    if constexpr (scale_per_step)
      return half_of(s[0], 0) * byte_of(s[1 + group / 2], group % 2 * 2 + step);
    else if constexpr (has_factors)
      return half_of(s[0], 0) * byte_of(s[1], group);
    else if constexpr (has_minimum)
      return half_of(s[group % scale_words], 0);
    else
      return half_of(s[group / 2 % scale_words], group % 2);
  }

  TROUPE_DEVICE float minimum(int half, int group) const {
    const auto& s = scales[half];
    if constexpr (has_factors)
      return half_of(s[0], 1) * byte_of(s[2], group);
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
