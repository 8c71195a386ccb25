// How packed weights are stored. Plain, so that the units of every device's kernels can include it.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// Float kinds hold weights as they are; `bf16_pairs` has two consecutive inputs in a word, for instructions that
/// multiply and add pairs. fp8 is E4M3 with an f32 scale per output. The grouped kinds have scales for every 32 inputs:
/// q8, q5 and q4 have codes of as many bits and one f16 scale, `_min` a minimum beside it, and the `_k` kinds
/// super-blocks of 8 groups with f16 factors over 8-bit scales and minima (q6_k: two scales per group). Each backend
/// lays them out its own way: the CPU has no fp8 and q8_min, CUDA no bf16_pairs, q5 and q5_min.
enum class weight_kind : std::uint8_t {
  f32,
  f16,
  bf16,
  bf16_pairs,
  fp8,
  q8,
  q8_min,
  q5,
  q5_min,
  q4,
  q4_min,
  q4_k,
  q5_k,
  q6_k
};

/// Whether groups of inputs have scales.
constexpr bool is_grouped(weight_kind kind) { return kind >= weight_kind::q8; }

} // namespace troupe::kernels
