// How checkpoints store weights: plain floats, or the block formats of GGUF files, where 32 or 256 consecutive inputs
// of an output share their scales, or fp8 with a scale for an output. Blocks are taken apart into groups of 32 inputs
// here, exactly; used at load by the backends' packing, by embedding tables, by loaders that expand blocks and by tests,
// on any thread.
// Source of the layouts: ggml's `ggml-common.h` and `dequantize_row_*` (https://github.com/ggml-org/ggml).
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

enum class dtype : std::uint8_t { f32, f16, bf16 };

constexpr std::size_t size_of(dtype t) { return t == dtype::f32 ? 4 : 2; }
const char* to_string(dtype t);

/// The first three are those of dtype; the others are GGUF's blocks. Their layouts, in bytes; f16 and multi-byte
/// integers are little-endian, byte i of a group of n bytes of nibbles holds weight i in its low half and weight i + n
/// in its high half:
///   q4_0  32 weights, 18: f16 d; 16 of nibbles.                          w = d * (q - 8)
///   q4_1  32 weights, 20: f16 d; f16 m; 16 of nibbles.                   w = d * q + m
///   q5_0  32 weights, 22: f16 d; u32 fifth bits; 16 of nibbles.          w = d * (q - 16)
///   q5_1  32 weights, 24: f16 d; f16 m; u32 fifth bits; 16 of nibbles.   w = d * q + m
///   q8_0  32 weights, 34: f16 d; 32 i8.                                  w = d * q
///   q4_k 256 weights, 144: f16 d; f16 dmin; 12 of eight 6-bit scales and minima; 4 groups of 32 of nibbles.
///   q5_k 256 weights, 176: as q4_k, with 32 of fifth bits (bit s of byte i: weight 32 s + i) before the nibbles.
///                                                                        w = (d * scale) * q - (dmin * minimum)
///   q6_k 256 weights, 210: 128 of low nibbles; 64 of upper bit pairs; 16 i8 scales; f16 d.
///                                                                        w = (d * scale) * (q - 32)
/// And one that is ours, in which loaders hand over FP8 checkpoints:
///   fp8  a row: f32 scale; a byte per weight, in E4M3 (e4m3.hpp).        w = scale * q
enum class weight_format : std::uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, fp8 };

constexpr weight_format format_of(dtype t) { return static_cast<weight_format>(t); }
constexpr bool is_float(weight_format f) { return f <= weight_format::bf16; }
/// Whether stored_group takes it.
constexpr bool has_groups(weight_format f) { return !is_float(f) && f != weight_format::fp8; }
/// Of a float format.
constexpr dtype dtype_of(weight_format f) { return static_cast<dtype>(f); }
const char* to_string(weight_format f);

/// Inputs in a block: 1 (floats, fp8), 32 or 256. The inputs of a matrix are a multiple of it.
std::size_t block_inputs(weight_format f);
/// Without the scale of an fp8 row.
std::size_t block_bytes(weight_format f);
/// Bytes of a row of `cols` inputs, a multiple of block_inputs(f).
std::size_t row_bytes(weight_format f, std::size_t cols);

/// What becomes of weights that are stored as floats when they are packed. int8 and int4 have groups of 32 inputs with
/// scales in f16: int8 is symmetric, int4 has a minimum beside the scale. fp8 is E4M3 with a scale in f32 for each
/// output, and for GPUs only.
enum class quantization : std::uint8_t { none, int8, int4, fp8 };
const char* to_string(quantization how);

/// Inputs that share a scale in packed matrices.
inline constexpr std::size_t group_inputs = 32;

/// 32 consecutive inputs of one output: weight i is d * scales[i / 16] * (codes[i] - zero) + m * minimum.
struct weight_group {
  std::uint8_t codes[group_inputs] = {};
  int zero = 0;
  std::uint16_t d = 0; // f16
  std::uint16_t m = 0; // f16
  std::int8_t scales[2] = {1, 1};
  std::int8_t minimum = 0;
};

/// Group `index` of a row that is stored in blocks. The row may be unaligned.
weight_group stored_group(weight_format f, const void* row, std::size_t index);

/// 32 weights, as q8_0 has them: the scale is the largest magnitude / 127, rounded to f16.
weight_group quantise_int8(const float* weights);

/// 32 weights with 4-bit codes and a minimum. For each of several scales around the one that spans the range, codes and
/// a least-squares fit of scale and minimum alternate; of all these, with scale and minimum rounded to f16, the one with
/// the least squared error is kept. Deterministic.
weight_group quantise_int4(const float* weights);

/// The weights of a group in f32, bit for bit as ggml's reference has them: products are exact there, the sum with the
/// minimum is rounded once.
void dequantise(const weight_group& group, float* weights);

/// The scale with which the largest magnitude of an output's weights becomes the largest of E4M3; 0 where all are 0, NaN
/// where one is not finite.
float fp8_scale(const float* weights, std::size_t count);

/// The code of a weight under a scale that fp8_scale gave.
std::uint8_t to_fp8(float weight, float scale);

/// The f32 values of `count` weights of a row from input `first` on, both multiples of 32 where the format has groups.
void expand(weight_format f, const void* row, std::size_t first, std::size_t count, float* weights);

/// The exact value of an f16.
float from_f16(std::uint16_t half);

/// To nearest, ties to even; finite values that are too large become the largest.
std::uint16_t to_f16(float x);

} // namespace troupe::kernels
