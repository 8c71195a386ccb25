// Shadows kernels/cuda/native/simt.hpp: the primitives of kernels in plain C++, over fibers.
#pragma once

#include "kernels/cuda/device/common.hpp"
#include "tests/emulation/cuda/fibers.hpp"

#include <bit>
#include <cmath>

namespace troupe::kernels::cuda::simt {

using emulated::atomic_add;
using emulated::block_x;
using emulated::block_y;
using emulated::copy_async;
using emulated::grid_x;
using emulated::shared;
using emulated::sync_block;
using emulated::thread;
using emulated::threads;
using emulated::wait_for_copies;

inline void wait_for_previous() {} // launches do not overlap

template <class T>
T shuffle_xor(T value, int mask) {
  return emulated::exchange(value, emulated::thread() % warp_lanes ^ static_cast<unsigned>(mask));
}

inline bool any(bool holds) {
  std::uint32_t found = holds;
  for (int mask = 16; mask > 0; mask /= 2)
    found |= shuffle_xor(found, mask);
  return found != 0;
}

inline words4 load_streamed(const void* from) {
  emulated::expect_aligned(from, sizeof(words4));
  return *static_cast<const words4*>(from);
}

inline void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) { emulated::mma(d, a, b); }
inline void product(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  d[0] = d[1] = d[2] = d[3] = 0;
  emulated::mma(d, a, b);
}

inline float mul(float a, float b) { return a * b; }
inline float add(float a, float b) { return a + b; }
inline float sub(float a, float b) { return a - b; }
inline float divide(float a, float b) { return a / b; }
inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
inline std::uint64_t round_to_integer(float x) { return static_cast<std::uint64_t>(std::nearbyint(x)); }
inline float exp(float x) { return std::exp(x); }
inline float log1p(float x) { return std::log1p(x); }
inline float exp2(float x) { return std::exp2(x); }
inline float maximum(float a, float b) { return std::fmax(a, b); }
inline float inverse_sqrt(float x) { return 1 / std::sqrt(x); }
inline float bits_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t float_to_bits(float x) { return std::bit_cast<std::uint32_t>(x); }
inline std::uint32_t insert_bits(std::uint32_t word, std::uint32_t mask, std::uint32_t into) {
  return (word & mask) | into;
}
inline std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline float infinity() { return __builtin_inff(); }
inline float f16_to_float(std::uint16_t h) {
  const float magnitude = std::bit_cast<float>(std::uint32_t(h & 0x7fff) << 13) * 0x1p112f;
  const std::uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | special | std::uint32_t(h & 0x8000) << 16);
}
inline std::uint16_t float_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x)
    return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline std::uint32_t float_to_bf16_pair(float x, float y) {
  return float_to_bf16(x) | std::uint32_t(float_to_bf16(y)) << 16;
}
inline float low_bf16(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
inline float high_bf16(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }
inline std::uint32_t subtract_bf16_pair(std::uint32_t a, std::uint32_t b) {
  return float_to_bf16_pair(low_bf16(a) - low_bf16(b), high_bf16(a) - high_bf16(b));
}
inline std::uint32_t multiply_bf16_pair(std::uint32_t a, std::uint32_t b) {
  return float_to_bf16_pair(low_bf16(a) * low_bf16(b), high_bf16(a) * high_bf16(b));
}

} // namespace troupe::kernels::cuda::simt
