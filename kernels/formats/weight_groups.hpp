// Reads stored blocks as groups of 32 inputs that share their scales: the form that the backends' packing, embedding
// tables and tests work on. Exact; any thread.
#pragma once

#include "kernels/formats/weight_format.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

/// Inputs that share a scale in packed matrices.
inline constexpr std::size_t group_inputs = 32;

/// What `d` of a group is.
enum class scale_type : std::uint8_t { f16, bf16, e4m3_halves };

/// 32 consecutive inputs of one output: weight i is d * unit * scales[i / 16] * (codes[i] - zero) + m * minima[i / 16].
struct weight_group {
  std::uint8_t codes[group_inputs] = {};
  int zero = 0;
  std::uint16_t d = 0; // f16, bf16, or a number in E4M3 without sign for each half, the first in the low byte
  std::uint16_t m = 0; // f16
  std::int8_t scales[2] = {1, 1};
  std::int8_t minima[2] = {0, 0};
  scale_type scale = scale_type::f16;
  float unit = 1; // a power of two
};

/// d * unit of a half in f32.
float scale_of(const weight_group& group, std::size_t half = 0);

/// Group `index` of a row in a format with groups. The row may be unaligned.
weight_group stored_group(weight_format f, const void* row, std::size_t index);

/// The weights of a group in f32, bit for bit those of ggml's reference: products are exact, the sum with the minimum
/// is rounded once.
void dequantise(const weight_group& group, float* weights);

/// The f32 values of `count` weights of a row in blocks or fp8 from input `first` on, both multiples of 32 if the
/// format has groups, of 4 if it is pruned.
void expand(weight_format f, const void* row, std::size_t first, std::size_t count, float* weights);

} // namespace troupe::kernels
