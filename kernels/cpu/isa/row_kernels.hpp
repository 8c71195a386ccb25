// Operations on one row: norm, rotary embedding, writing K and V to the cache. Only for the target units.
#pragma once

#include "kernels/cpu/isa/activations.hpp"
#include "kernels/cpu/isa/tile.hpp"

namespace troupe::kernels {
namespace {

template <class Operand>
inline void widen_row(float* to, const void* from, std::size_t n) {
  using element = typename Operand::element;
  const auto* x = static_cast<const char*>(from); // a checkpoint may be unaligned
  std::size_t i = 0;
  if (reinterpret_cast<std::uintptr_t>(x) % sizeof(element) == 0)
    for (; i + lanes <= n; i += lanes)
      store(to + i, Operand::column(reinterpret_cast<const element*>(x) + i));
  for (; i < n; i += lanes) {
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

/// (x - mean) / sqrt(variance + eps) * weight + bias; mean and variance are summed over lanes first.
template <class Out>
inline void normalise_layer(const norm_op& op, Out* out, const float* x) {
  const std::size_t n = op.cols;
  vec total = zero();
  for (std::size_t i = 0; i < n; i += lanes)
    total = total + load_some(x + i, n - i);
  const vec mean = broadcast(sum(total) / static_cast<float>(n));
  vec squares = zero();
  for (std::size_t i = 0; i < n; i += lanes) {
    vec v = load_some(x + i, n - i) - mean;
    if (n - i < lanes)
      v = select(0, static_cast<int>(n - i), v, zero());
    squares = fma(v, v, squares);
  }
  const vec scale = broadcast(1.0f / square_root(sum(squares) / static_cast<float>(n) + op.eps));
  for (std::size_t i = 0; i < n; i += lanes) {
    vec v = (load_some(x + i, n - i) - mean) * scale * load_some(op.weight + i, n - i);
    if (op.bias != nullptr)
      v = v + load_some(op.bias + i, n - i);
    store_some(out + i, v, n - i);
  }
}

void layer_norm(const norm_op& op, void* out, const float* x) {
  if (op.out_bf16)
    normalise_layer(op, static_cast<std::uint16_t*>(out), x);
  else
    normalise_layer(op, static_cast<float*>(out), x);
}

void scale(float* x, std::size_t n, float factor, float soft_cap) {
  const vec by = broadcast(factor), cap = broadcast(soft_cap);
  if (soft_cap == 0) {
    for (std::size_t i = 0; i < n; i += lanes)
      store_some(x + i, load_some(x + i, n - i) * by, n - i);
    return;
  }
  for (std::size_t i = 0; i < n; i += lanes)
    store_some(x + i, tanh(load_some(x + i, n - i) * by / cap) * cap, n - i);
}

void add_scaled(float* to, const float* x, std::size_t n, float factor) {
  const vec by = broadcast(factor);
  for (std::size_t i = 0; i < n; i += lanes)
    store_some(to + i, load_some(to + i, n - i) + load_some(x + i, n - i) * by, n - i);
}

void narrow(std::uint16_t* to, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes)
    store_some(to + i, load_some(from + i, n - i), n - i);
}

inline void rotate(float* x, const float* cosines, const float* sines, int half) {
  for (int i = 0; i < half; i += lanes) {
    const int n = half - i;
    const vec a = load_some(x + i, n), b = load_some(x + half + i, n);
    const vec c = load_some(cosines + i, n), s = load_some(sines + i, n);
    store_some(x + i, a * c - b * s, n);
    store_some(x + half + i, b * c + a * s, n);
  }
}

/// Clamps to the finite range of bf16, so that a cache only has finite numbers. NaN becomes the lowest.
inline vec finite(vec x) {
  constexpr float most = 0x1.fep127f;
  return min(broadcast(most), max(x, broadcast(-most)));
}

/// Sixteen codes of int8, in the low bits. Rounded to nearest even, as all are.
inline void int8_codes(std::uint32_t (&to)[lanes], const vec& x, const vec& inverse) {
  const vec rounded = fma(x, inverse, broadcast(0x1.8p23f));
  std::memcpy(to, &rounded, sizeof to);
}

/// Sixteen codes of E4M3, of numbers that are at most 448 but for rounding: to_e4m3 of kernels/formats.
inline void e4m3_codes(std::uint32_t (&to)[lanes], const vec& x, const vec& inverse) {
  const vec scaled = x * inverse;
  std::memcpy(to, &scaled, sizeof to);
  for (auto& bits : to) {
    const std::uint32_t sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    float magnitude;
    std::memcpy(&magnitude, &size, sizeof magnitude);
    magnitude += 0x1p14f; // subnormal codes are in its low bits
    std::uint32_t low;
    std::memcpy(&low, &magnitude, sizeof low);
    const std::uint32_t normal = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120u << 3);
    bits = sign | (size < 0x3c800000 ? low & 0xff : normal); // 2^-6
  }
}

/// Symmetric codes of which the largest is `Largest`, by `Codes`; returns their scale.
template <int Largest, auto Codes>
inline float quantise_head(std::int8_t* to, const float* x, int n) {
  vec largest = zero();
  for (int i = 0; i < n; i += lanes) {
    const vec v = load_some(x + i, n - i);
    largest = max(largest, max(v, zero() - v));
  }
  const float most = maximum(largest);
  const bool nothing = most < 0x1p-100f; // the inverse would overflow
  const vec inverse = broadcast(nothing ? 0 : Largest / most);
  for (int i = 0; i < n; i += lanes) {
    std::uint32_t codes[lanes];
    Codes(codes, load_some(x + i, n - i), inverse);
    for (int j = 0; j < lanes && i + j < n; ++j)
      to[i + j] = static_cast<std::int8_t>(codes[j]);
  }
  return nothing ? 0 : most / Largest;
}

/// Writes K and V of one head, made finite, to `slot` of a block. Null `v`: the layer has K alone.
inline void write_f32(char* keys, char* values, const float* k, const float* v, int dim, int slot) {
  auto* to = reinterpret_cast<float*>(keys);
  for (int d = 0; d < dim; ++d)
    to[d * 16 + slot] = k[d];
  if (v != nullptr)
    std::memcpy(reinterpret_cast<float*>(values) + slot * dim, v, dim * sizeof(float));
}

inline void write_bf16(char* keys, char* values, const float* k, const float* v, int dim, int slot) {
  auto* pairs = reinterpret_cast<std::uint32_t*>(keys);
  for (int d = 0; d < dim; d += 2)
    pairs[d * 8 + slot] = to_bf16(k[d]) | std::uint32_t(to_bf16(k[d + 1])) << 16;
  if (v == nullptr)
    return;
  auto* to = reinterpret_cast<std::uint16_t*>(values) + slot / 2 * 2 * dim + slot % 2;
  for (int d = 0; d < dim; ++d)
    to[2 * d] = to_bf16(v[d]);
}

template <int Largest, auto Codes>
inline void write_codes(char* keys, char* values, const float* k, const float* v, int dim, int slot) {
  auto* scales = reinterpret_cast<float*>(keys);
  auto* to = reinterpret_cast<std::int8_t*>(scales + 32);
  std::int8_t codes[max_head_dim];
  scales[slot] = quantise_head<Largest, Codes>(codes, k, dim);
  for (int d = 0; d < dim; ++d)
    to[d * 16 + slot] = codes[d];
  if (v != nullptr)
    scales[16 + slot] = quantise_head<Largest, Codes>(reinterpret_cast<std::int8_t*>(values) + slot * dim, v, dim);
}

void rope_write_kv(const rope_op& op, float* row, int position, int block) {
  const int dim = op.cache.head_dim;
  const float* cosines = op.rope == nullptr ? nullptr : op.rope + std::size_t(position) * dim;
  for (int head = 0; head < op.heads + (op.queries_only ? 0 : op.cache.kv_heads); ++head) {
    float* x = row + head * dim;
    const float* weight = head < op.heads ? op.q_norm : op.k_norm;
    if (weight != nullptr && !op.norm_behind)
      normalise(x, x, weight, dim, op.eps);
    if (cosines != nullptr)
      rotate(x, cosines, cosines + dim / 2, dim / 2);
    if (weight != nullptr && op.norm_behind)
      normalise(x, x, weight, dim, op.eps);
  }
  if (op.queries_only)
    return;
  float* k = row + op.heads * dim;
  const bool has_values = op.cache.value_bytes > 0;
  const int both = (has_values ? 2 : 1) * op.cache.kv_heads * dim;
  for (int i = 0; i < both; i += lanes)
    store_some(k + i, finite(load_some(k + i, both - i)), both - i);
  char* keys = op.cache.data + block * op.cache.key_bytes;
  char* values = op.cache.data + op.cache.value_offset + block * op.cache.value_bytes;
  for (int head = 0; head < op.cache.kv_heads; ++head, k += dim) {
    const float* v = has_values ? k + op.cache.kv_heads * dim : nullptr;
    switch (op.cache.type) {
      case kv_type::f32: write_f32(keys, values, k, v, dim, position % 16); break;
      case kv_type::bf16: write_bf16(keys, values, k, v, dim, position % 16); break;
      case kv_type::int8: write_codes<127, int8_codes>(keys, values, k, v, dim, position % 16); break;
      case kv_type::fp8: write_codes<448, e4m3_codes>(keys, values, k, v, dim, position % 16); break;
    }
    keys += op.cache.head_bytes;
    values += op.cache.head_bytes;
  }
}

} // namespace
} // namespace troupe::kernels
