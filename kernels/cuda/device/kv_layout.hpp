// The layout of the paged cache. In a layer: [blocks][kv_heads], then K as [16 tokens][head_dim] and V transposed,
// [head_dim][16 tokens], so that both can be loaded directly as second operands of the tensor cores. With int8 and fp8,
// f32 scales follow: of K [16 tokens], of V [16 tokens]. Layers of K alone lack V's elements, but not its scales.
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
  bool values = true; // or K alone

  /// A multiple of 16.
  TROUPE_DEVICE std::size_t head_bytes() const {
    return block_tokens * (values ? kv_bytes(type, head_dim) : key_bytes(type, head_dim));
  }
  /// In each row of qkv, behind the queries.
  constexpr int kept_heads() const { return values ? 2 * kv_heads : kv_heads; }
  TROUPE_DEVICE head_block head(std::int32_t block, int head) const {
    return {data + (std::size_t(block) * kv_heads + head) * head_bytes(), head_dim};
  }
  /// head_block::scales, also of K alone.
  TROUPE_DEVICE float* scales(const head_block& of) const {
    return reinterpret_cast<float*>(of.data + std::size_t(values ? 2 : 1) * block_tokens * head_dim);
  }
};

} // namespace troupe::kernels::cuda
