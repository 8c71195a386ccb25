// Where K and V of a token lie in the paged cache. In a layer: [blocks][kv_heads], then K as [16 tokens][head_dim] and
// V transposed, [head_dim][16 tokens]: both are what tensor cores want as their second operand, straight from memory.
#pragma once

#include "kernels/cuda/simt.hpp"
#include "kernels/ops.hpp"

namespace troupe::kernels::cuda {

/// One layer of a cache; offsets are in elements.
struct layer_cache {
  void* data = nullptr;
  int kv_heads = 0;
  int head_dim = 0;

  TROUPE_DEVICE std::size_t keys(std::int32_t block, int head) const {
    return (std::size_t(block) * kv_heads + head) * 2 * block_tokens * head_dim;
  }
  TROUPE_DEVICE std::size_t key(std::int32_t block, int head, int token, int d) const {
    return keys(block, head) + std::size_t(token) * head_dim + d;
  }
  TROUPE_DEVICE std::size_t value(std::int32_t block, int head, int token, int d) const {
    return keys(block, head) + std::size_t(block_tokens) * head_dim + std::size_t(d) * block_tokens + token;
  }
};

/// Elements of a cache or a tensor as floats.
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

} // namespace troupe::kernels::cuda
