// Operations on one row: norm, rotary embedding, writing K and V to the cache. Only for the target units.
#pragma once

#include "kernels/cpu/tile.hpp"

namespace troupe::kernels {
namespace {

template <class Operand>
inline void widen_row(float* to, const void* from, std::size_t n) {
  using element = typename Operand::element;
  const auto* x = static_cast<const char*>(from); // a checkpoint may be unaligned
  for (std::size_t i = 0; i < n; i += lanes) {
    element some[lanes] = {};
    std::memcpy(some, x + i * sizeof(element), (n - i < lanes ? n - i : lanes) * sizeof(element));
    store_some(to + i, Operand::column(some), n - i);
  }
}

void widen(weight_kind kind, float* to, const void* from, std::size_t n) {
  if (kind == weight_kind::f32)
    widen_row<f32_operand>(to, from, n);
  else if (kind == weight_kind::f16)
    widen_row<f16_operand>(to, from, n);
  else
    widen_row<bf16_operand>(to, from, n);
}

inline float square_root(float x) { return __builtin_sqrtf(x); }

/// 1 / sqrt(mean of squares + eps), summed over lanes first.
inline float inverse_rms(const float* x, std::size_t n, float eps) {
  vec squares = zero();
  for (std::size_t i = 0; i < n; i += lanes) {
    const vec v = load_some(x + i, n - i);
    squares = fma(v, v, squares);
  }
  return 1.0f / square_root(sum(squares) / static_cast<float>(n) + eps);
}

template <class Out>
inline void normalise(Out* out, const float* x, const float* weight, std::size_t n, float eps) {
  const vec scale = broadcast(inverse_rms(x, n, eps));
  for (std::size_t i = 0; i < n; i += lanes)
    store_some(out + i, load_some(x + i, n - i) * scale * load_some(weight + i, n - i), n - i);
}

void rms_norm(const norm_op& op, void* out, const float* x) {
  if (op.out_bf16)
    normalise(static_cast<std::uint16_t*>(out), x, op.weight, op.cols, op.eps);
  else
    normalise(static_cast<float*>(out), x, op.weight, op.cols, op.eps);
}

inline void rotate(float* x, const float* cosines, const float* sines, int half) {
  for (int i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + half] = b * cosines[i] + a * sines[i];
  }
}

inline void put(float* p, float x) { *p = x; }
inline void put(std::uint16_t* p, float x) { *p = to_bf16(x); }

template <class Element>
void write_kv(const layer_cache& cache, const float* k, const float* v, int block, int slot) {
  auto* to = reinterpret_cast<Element*>(cache.data + block * cache.block_bytes);
  for (int head = 0; head < cache.kv_heads; ++head) {
    for (int d = 0; d < cache.head_dim; ++d)
      put(to + d * 16 + slot, *k++);
    to += cache.head_dim * 16;
    for (int d = 0; d < cache.head_dim; ++d)
      put(to + slot * cache.head_dim + d, *v++);
    to += cache.head_dim * 16;
  }
}

void rope_write_kv(const rope_op& op, float* row, int position, int block) {
  const int dim = op.cache.head_dim;
  const float* cosines = op.rope + std::size_t(position) * dim;
  for (int head = 0; head < op.heads + op.cache.kv_heads; ++head) {
    float* x = row + head * dim;
    if (const float* weight = head < op.heads ? op.q_norm : op.k_norm)
      normalise(x, x, weight, dim, op.eps);
    rotate(x, cosines, cosines + dim / 2, dim / 2);
  }
  const float* k = row + op.heads * dim;
  const float* v = k + op.cache.kv_heads * dim;
  if (op.cache.bf16)
    write_kv<std::uint16_t>(op.cache, k, v, block, position % 16);
  else
    write_kv<float>(op.cache, k, v, block, position % 16);
}

} // namespace
} // namespace troupe::kernels
