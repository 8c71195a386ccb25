// The layout of the paged cache. In a layer: [blocks][kv_heads], then K as [16 tokens][head_dim] and V transposed,
// [head_dim][16 tokens], so that both can be loaded directly as second operands of the tensor cores. With int8 and fp8,
// f32 scales follow: of K [16 tokens], of V [16 tokens].
#pragma once

#include "kernels/cuda/device/common.hpp"
#include "kernels/ops.hpp"

namespace troupe::kernels::cuda {

/// The largest head: latent attention has one wide head.
inline constexpr int most_head_dim = 640;

/// K and V of one head in one block.
struct head_block {
  unsigned char* data;
  int head_dim;

  /// Indices of elements.
  TROUPE_DEVICE std::size_t key(int token, int d) const { return std::size_t(token) * head_dim + d; }
  TROUPE_DEVICE std::size_t value(int token, int d) const {
    return std::size_t(block_tokens) * head_dim + std::size_t(d) * block_tokens + token;
  }
  /// K's, then V's. Only for types with scales.
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

} // namespace troupe::kernels::cuda
