// Where K and V of a token lie in the paged cache. In a layer: [blocks][kv_heads], then K as [16 tokens][head_dim] and
// V transposed, [head_dim][16 tokens]: both are what tensor cores want as their second operand, straight from memory.
// With int8 and fp8, scales follow: of K [16 tokens], of V [16 tokens], f32.
#pragma once

#include "kernels/cuda/device/simt.hpp"
#include "kernels/formats/e4m3.hpp"
#include "kernels/ops.hpp"

namespace troupe::kernels::cuda {

/// K and V of one head in one block.
struct head_block {
  unsigned char* data;
  int head_dim;

  /// Indices of elements.
  TROUPE_DEVICE std::size_t key(int token, int d) const { return std::size_t(token) * head_dim + d; }
  TROUPE_DEVICE std::size_t value(int token, int d) const {
    return std::size_t(block_tokens) * head_dim + std::size_t(d) * block_tokens + token;
  }
  /// K's, then V's; only of types that have them.
  TROUPE_DEVICE float* scales() const {
    return reinterpret_cast<float*>(data + std::size_t(2) * block_tokens * head_dim);
  }
};

/// One layer of a cache.
struct layer_cache {
  unsigned char* data = nullptr;
  int kv_heads = 0;
  int head_dim = 0;
  kv_type type = kv_type::f32;

  /// A multiple of 16.
  TROUPE_DEVICE std::size_t head_bytes() const { return block_tokens * kv_bytes(type, head_dim); }
  TROUPE_DEVICE head_block head(std::int32_t block, int head) const {
    return {data + (std::size_t(block) * kv_heads + head) * head_bytes(), head_dim};
  }
};

/// Elements of a tensor as floats.
TROUPE_DEVICE float load_float(const void* data, dtype type, std::size_t index) {
  if (type == dtype::f32)
    return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  return type == dtype::bf16 ? simt::bf16_to_float(bits) : simt::f16_to_float(bits);
}

/// To f32 or bf16.
TROUPE_DEVICE void store_float(void* data, dtype type, std::size_t index, float x) {
  if (type == dtype::f32)
    static_cast<float*>(data)[index] = x;
  else
    static_cast<std::uint16_t*>(data)[index] = simt::float_to_bf16(x);
}

/// Element or code `index` of a head's block, without its scale.
TROUPE_DEVICE float load_cell(const unsigned char* data, kv_type type, std::size_t index) {
  switch (type) {
    case kv_type::f32: return reinterpret_cast<const float*>(data)[index];
    case kv_type::bf16: return simt::bf16_to_float(reinterpret_cast<const std::uint16_t*>(data)[index]);
    case kv_type::int8: return static_cast<float>(static_cast<std::int8_t>(data[index]));
    case kv_type::fp8: return from_e4m3(data[index]);
  }
  return 0;
}

/// `inverse`: of its token's scale, used by int8 and fp8 only.
TROUPE_DEVICE void store_cell(unsigned char* data, kv_type type, std::size_t index, float x, float inverse) {
  switch (type) {
    case kv_type::f32: reinterpret_cast<float*>(data)[index] = x; return;
    case kv_type::bf16: reinterpret_cast<std::uint16_t*>(data)[index] = simt::float_to_bf16(x); return;
    case kv_type::int8: // the sum's last byte is the nearest integer
      data[index] = static_cast<unsigned char>(simt::float_to_bits(simt::fused(x, inverse, 0x1.8p23f)));
      return;
    case kv_type::fp8: data[index] = to_e4m3(simt::mul(x, inverse)); return;
  }
}

/// The code of the largest magnitude.
TROUPE_DEVICE float largest_code(kv_type type) { return type == kv_type::int8 ? 127 : largest_e4m3; }

} // namespace troupe::kernels::cuda
