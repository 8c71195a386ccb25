// The formats in which checkpoints store weights, with one table of their facts that files, packing and messages read:
// plain floats, GGUF's blocks of 32 or 256 consecutive inputs of one output, fp8 with a scale per output, and floats of
// which 2 of 4 are stored. weight_groups.hpp and pruned_weights.hpp read the blocks. README.md says how to add a
// format.
#pragma once

#include "kernels/formats/weight_kind.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

namespace troupe::kernels {

/// Types of activations.
enum class dtype : std::uint8_t { f32, f16, bf16 };

constexpr std::size_t size_of(dtype t) { return t == dtype::f32 ? 4 : 2; }

/// The first three are those of dtype. GGUF's blocks, in bytes: f16 and multi-byte integers are little-endian; byte i
/// of a group of n bytes of nibbles holds weight i in its low half and weight i + n in its high half:
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
///   q2_k 256 weights, 84: 16 of a 4-bit scale and, above it, minimum; 64 of bit pairs; f16 d; f16 dmin.
///                                                                        w = (d * scale) * q - (dmin * minimum)
///   q3_k 256 weights, 110: 32 of third bits (as q5_k's fifth); 64 of bit pairs; 12 of 16 6-bit scales; f16 d.
///                                                                        w = (d * (scale - 32)) * (q - 4)
///   Bit pairs: each 32 bytes hold four groups of 32, the first in the lowest bits.
///   iq4_nl 32 weights, 18: as q4_0, but w = d * iq4_table[q] (weight_kind.hpp).
///   iq4_xs 256 weights, 136: f16 d; u16 of upper bit pairs of eight scales; 4 of their lower nibbles; 8 groups of 16
///   of
///          nibbles.                                                      w = d * (scale - 32) * iq4_table[q]
///   mxfp4 32 weights, 17: u8 e; 16 of nibbles.                           w = 2^(e - 128) * mx4_table[q]
///   nvfp4 64 weights, 36: 4 u8 scales in E4M3 without sign; 4 of 8 of nibbles, for 16 weights each.
///                                                                        w = scale * mx4_table[q] / 2
///   q1_0 128 weights, 18: f16 d; 16 of bits.                             w = d * (2 * q - 1)
///   tq2_0 256 weights, 66: 64 of bit pairs; f16 d.                       w = d * (q - 1)
///   tq1_0 256 weights, 54: 32 of five, 16 of five and 4 of four digits of base 3, the first n of n bytes before their
///   second; f16 d. A byte is 256 / 243 of the number, rounded up.        w = d * (q - 1)
///   iq1_s to iq3_s have codebooks and are described in codebooks.hpp.
/// The checkpoint readers convert FP8 checkpoints to a format of Troupe's own:
///   fp8  a row: f32 scale; a byte per weight, in E4M3 (e4m3.hpp).        w = scale * q
///   fp8_128, fp8_32  as fp8, with a scale before each 128 or 32 inputs, of which a row may end with fewer.
/// and matrices of which 2 of every 4 inputs are stored to
///   f32_24, f16_24, bf16_24  8 weights, 17 or 9 bytes: the 4 that are not zero, in order; a byte with the places of the
///        first two of them in its low half (bits 0 and 1: of the first, bits 2 and 3: of the second, which is behind
///        it), and those of the others in its high half.
/// Source of the block layouts: ggml's `ggml-common.h` and `dequantize_row_*` (https://github.com/ggml-org/ggml).
enum class weight_format : std::uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
  fp8,
  q2_k,
  q3_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  nvfp4,
  q1_0,
  tq1_0,
  tq2_0,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  fp8_128,
  fp8_32,
  f32_24,
  f16_24,
  bf16_24
};

/// All there is to know of a format but how its blocks are read.
struct weight_format_traits {
  weight_format format = weight_format::f32;
  const char* name = "";          // in options and the log
  const char* name_in_files = ""; // ggml's, or safetensors'
  bool in_safetensors = false;    // `name_in_files` is a dtype of safetensors with the same bytes
  int ggml_type = -1;             // GGUF's number; -1: none
  std::size_t block_inputs = 1;
  std::size_t block_bytes = 0;
  std::size_t row_header = 0; // bytes of a scale before a row's first block, or before each of its `scale_inputs`
  // The kinds that hold the weights exactly, but that GPUs round those of formats in few bits to bf16. Backends may pack
  // floats in another.
  weight_kind on_cpu = weight_kind::f32;
  weight_kind on_gpu = weight_kind::f32;
  std::size_t scale_inputs = 0; // that share a scale before them; 0: a row's
};

// clang-format off
inline constexpr weight_format_traits weight_formats[] = {
  // format               name      in files   dtype  ggml inputs bytes header on CPU               on GPU
  {weight_format::f32,    "f32",    "F32",     true,  0,   1,     4,    0,     weight_kind::f32,    weight_kind::f32},
  {weight_format::f16,    "f16",    "F16",     true,  1,   1,     2,    0,     weight_kind::f16,    weight_kind::f16},
  {weight_format::bf16,   "bf16",   "BF16",    true,  30,  1,     2,    0,     weight_kind::bf16,   weight_kind::bf16},
  {weight_format::q4_0,   "q4_0",   "Q4_0",    false, 2,   32,    18,   0,     weight_kind::q4,     weight_kind::q4},
  {weight_format::q4_1,   "q4_1",   "Q4_1",    false, 3,   32,    20,   0,     weight_kind::q4_min, weight_kind::q4_min},
  {weight_format::q5_0,   "q5_0",   "Q5_0",    false, 6,   32,    22,   0,     weight_kind::q5,     weight_kind::q5},
  {weight_format::q5_1,   "q5_1",   "Q5_1",    false, 7,   32,    24,   0,     weight_kind::q5_min, weight_kind::q5_min},
  {weight_format::q8_0,   "q8_0",   "Q8_0",    false, 8,   32,    34,   0,     weight_kind::q8,     weight_kind::q8},
  {weight_format::q4_k,   "q4_k",   "Q4_K",    false, 12,  256,   144,  0,     weight_kind::q4_k,   weight_kind::q4_k},
  {weight_format::q5_k,   "q5_k",   "Q5_K",    false, 13,  256,   176,  0,     weight_kind::q5_k,   weight_kind::q5_k},
  {weight_format::q6_k,   "q6_k",   "Q6_K",    false, 14,  256,   210,  0,     weight_kind::q6_k,   weight_kind::q6_k},
  {weight_format::fp8,    "fp8",    "F8_E4M3", false, -1,  1,     1,    4,     weight_kind::fp8,    weight_kind::fp8},
  {weight_format::q2_k,   "q2_k",   "Q2_K",    false, 10,  256,   84,   0,     weight_kind::q2_k,   weight_kind::bf16},
  {weight_format::q3_k,   "q3_k",   "Q3_K",    false, 11,  256,   110,  0,     weight_kind::q3_k,   weight_kind::q6_k},
  {weight_format::iq4_nl, "iq4_nl", "IQ4_NL",  false, 20,  32,    18,   0,     weight_kind::iq4,    weight_kind::q8},
  {weight_format::iq4_xs, "iq4_xs", "IQ4_XS",  false, 23,  256,   136,  0,     weight_kind::iq4_k,  weight_kind::iq4_k},
  {weight_format::mxfp4,  "mxfp4",  "MXFP4",   false, 39,  32,    17,   0,     weight_kind::mx4,    weight_kind::bf16},
  {weight_format::nvfp4,  "nvfp4",  "NVFP4",   false, 40,  64,  36,    0,     weight_kind::nv4,    weight_kind::bf16},
  {weight_format::q1_0,   "q1_0",   "Q1_0",    false, 41,  128, 18,    0,     weight_kind::q1,     weight_kind::bf16},
  {weight_format::tq1_0,  "tq1_0",  "TQ1_0",   false, 34,  256, 54,    0,     weight_kind::tq2,    weight_kind::bf16},
  {weight_format::tq2_0,  "tq2_0",  "TQ2_0",   false, 35,  256, 66,    0,     weight_kind::tq2,    weight_kind::bf16},
  {weight_format::iq1_s,  "iq1_s",  "IQ1_S",   false, 19,  256, 50,    0,     weight_kind::iq1,    weight_kind::bf16},
  {weight_format::iq1_m,  "iq1_m",  "IQ1_M",   false, 29,  256, 56,    0,     weight_kind::iq1,    weight_kind::bf16},
  {weight_format::iq2_xxs,"iq2_xxs","IQ2_XXS", false, 16,  256, 66,    0,     weight_kind::iq2_xxs,weight_kind::bf16},
  {weight_format::iq2_xs, "iq2_xs", "IQ2_XS",  false, 17,  256, 74,    0,     weight_kind::iq2_xs, weight_kind::bf16},
  {weight_format::iq2_s,  "iq2_s",  "IQ2_S",   false, 22,  256, 82,    0,     weight_kind::iq2_s,  weight_kind::bf16},
  {weight_format::iq3_xxs,"iq3_xxs","IQ3_XXS", false, 18,  256, 98,    0,     weight_kind::iq3_xxs,weight_kind::bf16},
  {weight_format::iq3_s,  "iq3_s",  "IQ3_S",   false, 21,  256, 110,   0,     weight_kind::iq3_s,  weight_kind::bf16},
  {weight_format::fp8_128,"fp8 128", "F8_E4M3", false, -1,  1,     1,    4,     weight_kind::fp8,    weight_kind::bf16, 128},
  {weight_format::fp8_32, "fp8 32",  "F8_E4M3", false, -1,  1,     1,    4,     weight_kind::fp8,    weight_kind::bf16, 32},
  {weight_format::f32_24, "f32 2:4","F32 2:4", false, -1,  8,     17,   0,     weight_kind::f32,    weight_kind::bf16},
  {weight_format::f16_24, "f16 2:4","F16 2:4", false, -1,  8,     9,    0,     weight_kind::f16,    weight_kind::bf16},
  {weight_format::bf16_24,"bf16 2:4","BF16 2:4",false,-1,  8,     9,    0,     weight_kind::bf16,   weight_kind::bf16},
};
// clang-format on

constexpr const weight_format_traits& traits_of(weight_format f) { return weight_formats[static_cast<std::size_t>(f)]; }

static_assert(
  [] {
    for (std::size_t i = 0; i < std::size(weight_formats); ++i)
      if (weight_formats[i].format != static_cast<weight_format>(i))
        return false;
    return true;
  }(),
  "the table must be in the order of weight_format");

constexpr weight_format format_of(dtype t) { return static_cast<weight_format>(t); }
constexpr bool is_float(weight_format f) { return f <= weight_format::bf16; }
/// The type of a float format's elements.
constexpr dtype dtype_of(weight_format f) { return static_cast<dtype>(f); }

constexpr const char* to_string(weight_format f) { return traits_of(f).name; }
constexpr const char* to_string(dtype t) { return to_string(format_of(t)); }

/// Whether 2 of every 4 inputs are stored.
constexpr bool is_pruned(weight_format f) { return f >= weight_format::f32_24; }
/// The format of the weights of a pruned matrix; others are their own.
constexpr weight_format whole_format(weight_format f) {
  switch (f) {
    case weight_format::f32_24: return weight_format::f32;
    case weight_format::f16_24: return weight_format::f16;
    case weight_format::bf16_24: return weight_format::bf16;
    default: return f;
  }
}

/// Inputs in a block: 1 (floats, all of fp8), 8 (of which 4 are stored), or 32 to 256. A matrix's inputs are a multiple of it.
constexpr std::size_t block_inputs(weight_format f) { return traits_of(f).block_inputs; }
constexpr std::size_t block_bytes(weight_format f) { return traits_of(f).block_bytes; }
/// Whether the halves of a group have minima of their own.
constexpr bool has_half_minima(weight_format f) { return f == weight_format::q2_k; }
/// Whether blocks are read but never written.
constexpr bool is_only_read(weight_format f) { return f >= weight_format::mxfp4 && f <= weight_format::iq3_s; }
/// Whether weights come in groups that `stored_group` reads.
constexpr bool has_groups(weight_format f) { return block_inputs(f) >= 32; }
/// Whether weights are bytes in E4M3.
constexpr bool is_fp8(weight_format f) {
  return f == weight_format::fp8 || f == weight_format::fp8_128 || f == weight_format::fp8_32;
}
/// Whether parts of a row have scales of their own.
constexpr bool has_scale_blocks(weight_format f) { return traits_of(f).scale_inputs != 0; }
/// Bytes of a row of `cols` inputs, a multiple of block_inputs(f).
constexpr std::size_t row_bytes(weight_format f, std::size_t cols) {
  const auto& traits = traits_of(f);
  const auto scales = traits.scale_inputs == 0 ? 1 : (cols + traits.scale_inputs - 1) / traits.scale_inputs;
  return traits.row_header * scales + cols / traits.block_inputs * traits.block_bytes;
}
/// Where the code of input `index` of a row of fp8 is, in bytes. Those that share a scale are neighbours.
constexpr std::size_t fp8_offset(weight_format f, std::size_t index) { return row_bytes(f, index + 1) - 1; }
/// Where the scale of these inputs is, which is before the first of them.
constexpr std::size_t fp8_scale_offset(weight_format f, std::size_t index) {
  const auto inputs = traits_of(f).scale_inputs;
  return inputs == 0 ? 0 : row_bytes(f, index / inputs * inputs);
}

/// The format with this number in GGUF files, if it is supported.
constexpr std::optional<weight_format> format_of_ggml_type(std::uint32_t number) {
  for (const auto& traits : weight_formats)
    if (traits.ggml_type >= 0 && static_cast<std::uint32_t>(traits.ggml_type) == number)
      return traits.format;
  return std::nullopt;
}

/// How weights that are stored as floats are quantised at packing. int8 and int4 have groups of 32 inputs with scales
/// in f16: int8 is symmetric, int4 has a minimum beside the scale. fp8 is E4M3 with an f32 scale per output. bf16 has no
/// scales: it keeps 8 of the 11 bits of f16, which multiply as fast as those that are stored in bf16.
enum class quantization : std::uint8_t { none, int8, int4, fp8, bf16 };

constexpr const char* to_string(quantization how) {
  switch (how) {
    case quantization::none: return "none";
    case quantization::int8: return "int8";
    case quantization::int4: return "int4";
    case quantization::fp8: return "fp8";
    case quantization::bf16: return "bf16";
  }
  return "unknown";
}

} // namespace troupe::kernels
