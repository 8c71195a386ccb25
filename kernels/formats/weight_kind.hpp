// How packed weights are stored. Plain, so that the units of every device's kernels can include it.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// Float kinds hold weights as they are; `bf16_pairs` has two consecutive inputs in a word, for instructions that
/// multiply and add pairs, and `bf16_halves` two outputs, which mask and shift take apart. fp8 is E4M3 with an f32 scale per output; `fp8_pairs` has two codes in a word, which become
/// such pairs. The grouped kinds have scales for every 32 inputs:
/// q8, q5 and q4 have codes of as many bits and one f16 scale, `_min` a minimum beside it, and the `_k` kinds
/// super-blocks of 8 groups with f16 factors over 8-bit scales and minima (q6_k and q3_k: two scales per group; q2_k:
/// two scales and two minima). The codes of iq4, iq4_k and mx4 are places in tables of 16 weights; the scale of an mx4
/// group is a bf16. Each backend lays them out its own way; CUDA has no pairs, halves, q3_k, q2_k and tables (its iq4_k has 8-bit
/// codes).
enum class weight_kind : std::uint8_t {
  f32,
  f16,
  bf16,
  bf16_pairs,
  bf16_halves,
  fp8,
  fp8_pairs,
  q8,
  q5,
  q5_min,
  q4,
  q4_min,
  q4_k,
  q5_k,
  q6_k,
  q3_k,
  q2_k,
  iq4,
  iq4_k,
  mx4
};

/// The weights of iq4 and iq4_k, and twice those of mx4 (E2M1), by code, plus 128.
inline constexpr std::uint8_t iq4_table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr std::uint8_t mx4_table[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                               128, 127, 126, 125, 124, 122, 120, 116};

/// Whether a word has two inputs.
constexpr bool in_pairs(weight_kind kind) { return kind == weight_kind::bf16_pairs || kind == weight_kind::fp8_pairs; }

/// Whether weights are codes of E4M3.
constexpr bool is_fp8(weight_kind kind) { return kind == weight_kind::fp8 || kind == weight_kind::fp8_pairs; }

/// Whether groups of inputs have scales.
constexpr bool is_grouped(weight_kind kind) { return kind >= weight_kind::q8; }

} // namespace troupe::kernels
