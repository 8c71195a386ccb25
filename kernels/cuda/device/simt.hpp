// The vocabulary that kernels are written in: who am I, barriers, warp shuffles, tensor-core products, vector loads.
// Compiled by nvcc it is the GPU's own instructions; compiled by a C++ compiler (tests/cuda) the same kernels run on
// the host, threads as fibers (emulated/fibers.hpp). Blocks are one-dimensional, of whole warps; all lanes of a warp
// take part in its collective operations.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define TROUPE_DEVICE __device__ __forceinline__
#else
#include "tests/emulation/cuda/fibers.hpp"

#include <bit>
#include <cmath>
#define TROUPE_DEVICE inline
#endif

namespace troupe::kernels::cuda {

inline constexpr unsigned warp_lanes = 32;

struct grid_size {
  unsigned x = 1, y = 1;
};

/// 8 and 16 bytes that are loaded and stored at once; aligned to their size.
struct alignas(8) words2 {
  std::uint32_t x = 0, y = 0;
};
struct alignas(16) words4 {
  std::uint32_t x = 0, y = 0, z = 0, w = 0;
};

/// Word `index` of four; where that is an unrolled loop's constant, it costs nothing.
TROUPE_DEVICE std::uint32_t word_of(const words4& from, int index) {
  return index == 0 ? from.x : index == 1 ? from.y : index == 2 ? from.z : from.w;
}

namespace simt {

#ifdef __CUDACC__

TROUPE_DEVICE unsigned thread() { return threadIdx.x; }
TROUPE_DEVICE unsigned threads() { return blockDim.x; }
TROUPE_DEVICE unsigned block_x() { return blockIdx.x; }
TROUPE_DEVICE unsigned block_y() { return blockIdx.y; }
TROUPE_DEVICE unsigned grid_x() { return gridDim.x; }
TROUPE_DEVICE void sync_block() { __syncthreads(); }

template <class T>
TROUPE_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

/// The block's dynamic shared memory, aligned to 16 bytes.
TROUPE_DEVICE unsigned char* shared() {
  extern __shared__ __align__(16) unsigned char troupe_shared[];
  return troupe_shared;
}

template <class T>
TROUPE_DEVICE T atomic_add(T* at, T value) {
  if constexpr (sizeof(T) == 8)
    return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
  else
    return atomicAdd(at, value);
}

/// Loads what is read once: it does not displace what is in the first-level cache.
TROUPE_DEVICE words4 load_streamed(const void* from) {
  words4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(from));
  return v;
}

/// 16 bytes to shared memory, which are there for the thread when it has waited, and for others after a barrier then.
TROUPE_DEVICE void copy_async(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
TROUPE_DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// d += a * b of a warp: a is 16 x 16, b 16 x 8, both bf16 in pairs, d 16 x 8 in f32. With g = lane / 4, t = lane % 4:
/// a[0] is row g, columns 2t and 2t+1; a[1] row g+8; a[2], a[3] the same rows, columns 8 later; b[0] is rows 2t and
/// 2t+1 of column g, b[1] 8 rows later; d[0], d[1] are row g, columns 2t and 2t+1; d[2], d[3] row g+8.
TROUPE_DEVICE void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Single-rounded: never contracted into a fused operation.
TROUPE_DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
TROUPE_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
TROUPE_DEVICE float sub(float a, float b) { return __fsub_rn(a, b); }
TROUPE_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
/// a * b + c, rounded once.
TROUPE_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
/// To nearest even.
TROUPE_DEVICE std::uint64_t round_to_integer(float x) { return __float2ull_rn(x); }

TROUPE_DEVICE float exp(float x) { return expf(x); }
TROUPE_DEVICE float inverse_sqrt(float x) { return 1 / sqrtf(x); }
TROUPE_DEVICE float bits_to_float(std::uint32_t bits) { return __uint_as_float(bits); }
TROUPE_DEVICE std::uint32_t float_to_bits(float x) { return __float_as_uint(x); }
TROUPE_DEVICE std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) { return __umul64hi(a, b); }
TROUPE_DEVICE float infinity() { return __int_as_float(0x7f800000); }
TROUPE_DEVICE float f16_to_float(std::uint16_t h) { return __half2float(__ushort_as_half(h)); }
TROUPE_DEVICE std::uint16_t float_to_bf16(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
/// x in the low half.
TROUPE_DEVICE std::uint32_t float_to_bf16_pair(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
/// Both halves of a - b, rounded to bf16.
TROUPE_DEVICE std::uint32_t subtract_bf16_pair(std::uint32_t a, std::uint32_t b) {
  const __nv_bfloat162 d = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                   *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const std::uint32_t*>(&d);
}
/// Both halves of a * b, rounded to bf16; subnormal numbers count.
TROUPE_DEVICE std::uint32_t multiply_bf16_pair(std::uint32_t a, std::uint32_t b) {
  const __nv_bfloat162 d = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                   *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const std::uint32_t*>(&d);
}

#else

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

template <class T>
T shuffle_xor(T value, int mask) {
  return emulated::exchange(value, emulated::thread() % warp_lanes ^ static_cast<unsigned>(mask));
}

inline words4 load_streamed(const void* from) {
  emulated::expect_aligned(from, sizeof(words4));
  return *static_cast<const words4*>(from);
}

inline void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) { emulated::mma(d, a, b); }

inline float mul(float a, float b) { return a * b; }
inline float add(float a, float b) { return a + b; }
inline float sub(float a, float b) { return a - b; }
inline float divide(float a, float b) { return a / b; }
inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
inline std::uint64_t round_to_integer(float x) { return static_cast<std::uint64_t>(std::nearbyint(x)); }
inline float exp(float x) { return std::exp(x); }
inline float inverse_sqrt(float x) { return 1 / std::sqrt(x); }
inline float bits_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t float_to_bits(float x) { return std::bit_cast<std::uint32_t>(x); }
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

#endif

TROUPE_DEVICE unsigned lane() { return thread() % warp_lanes; }
TROUPE_DEVICE unsigned warp() { return thread() / warp_lanes; }
TROUPE_DEVICE float bf16_to_float(std::uint16_t b) { return bits_to_float(std::uint32_t(b) << 16); }
template <class T>
TROUPE_DEVICE T larger(T a, T b) {
  return a > b ? a : b;
}

/// The same sum, in the same order, in every lane.
template <class T>
TROUPE_DEVICE T warp_sum(T value) {
  for (int mask = 16; mask > 0; mask /= 2)
    value += shuffle_xor(value, mask);
  return value;
}

template <class T>
TROUPE_DEVICE T warp_max(T value) {
  for (int mask = 16; mask > 0; mask /= 2)
    value = larger(value, shuffle_xor(value, mask));
  return value;
}

/// Combines a value of every warp, in the order of the warps, by all threads; `scratch`: an element of shared memory
/// per warp. Ends with a barrier, so that the scratch may be used again.
template <class T, class Combine>
TROUPE_DEVICE T across_warps(T value, T* scratch, const Combine& combine) {
  if (lane() == 0)
    scratch[warp()] = value;
  sync_block();
  T total = scratch[0];
  for (unsigned w = 1; w < threads() / warp_lanes; ++w)
    total = combine(total, scratch[w]);
  sync_block();
  return total;
}

template <class T>
TROUPE_DEVICE T block_sum(T value, T* scratch) {
  return across_warps(warp_sum(value), scratch, [](T a, T b) { return a + b; });
}

TROUPE_DEVICE float block_max(float value, float* scratch) {
  return across_warps(warp_max(value), scratch, [](float a, float b) { return larger(a, b); });
}

} // namespace simt
} // namespace troupe::kernels::cuda
