// Quantised weights in blocks, as GGUF files store them: 32 or 256 consecutive weights of a row share scales. Layouts,
// sizes and the exact values that they stand for. Used by loaders that expand blocks, and by packers that keep them.
// Source of the layouts: ggml's `ggml-common.h` and `dequantize_row_*` (https://github.com/ggml-org/ggml).
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

/// Layouts, in bytes; f16 and multi-byte integers are little-endian, "low nibbles first" means that byte i of a group of
/// n bytes holds weight i in its low half and weight i + n in its high half.
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
enum class block_format : std::uint8_t { q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };

const char* to_string(block_format format);

/// Weights in a block. Rows hold whole blocks.
constexpr std::size_t block_weights(block_format f) { return f < block_format::q4_k ? 32 : 256; }

constexpr std::size_t block_bytes(block_format f) {
  constexpr std::size_t bytes[] = {18, 20, 22, 24, 34, 144, 176, 210};
  return bytes[static_cast<std::size_t>(f)];
}

/// The exact value of an f16.
float from_f16(std::uint16_t half);

/// Writes the f32 values of `count` weights, a multiple of the block's, bit for bit as ggml's reference does (each
/// operation rounded, none fused). `blocks` may have any alignment.
void expand_blocks(block_format format, const void* blocks, std::size_t count, float* out);

} // namespace troupe::kernels
