// The primitives of kernels (device/simt.hpp) as GPU instructions. The emulated build shadows this header with one of
// the same path (tests/emulation).
#pragma once

#include "kernels/cuda/device/common.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace troupe::kernels::cuda::simt {

TROUPE_DEVICE unsigned thread() { return threadIdx.x; }
TROUPE_DEVICE unsigned threads() { return blockDim.x; }
TROUPE_DEVICE unsigned block_x() { return blockIdx.x; }
TROUPE_DEVICE unsigned block_y() { return blockIdx.y; }
TROUPE_DEVICE unsigned grid_x() { return gridDim.x; }
TROUPE_DEVICE void sync_block() { __syncthreads(); }

/// Waits until the kernels launched before are done and their memory is visible; the next kernel's blocks may start
/// beside this one's, up to where they wait. Without effect where launches do not overlap (native/launch.hpp).
TROUPE_DEVICE void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class T>
TROUPE_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

/// Whether `holds` in any lane of the warp.
TROUPE_DEVICE bool any(bool holds) { return __any_sync(0xffffffffu, holds) != 0; }

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

/// Loads data that is read once, without evicting data from the first-level cache.
TROUPE_DEVICE words4 load_streamed(const void* from) {
  words4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(from));
  return v;
}

/// Copies 16 bytes to shared memory. They are visible to the thread after wait_for_copies, to others after a barrier
/// that follows it.
TROUPE_DEVICE void copy_async(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
TROUPE_DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// d += a * b by a warp: a is 16 x 16, b 16 x 8, both bf16 in pairs, d 16 x 8 in f32. With g = lane / 4, t = lane % 4:
/// a[0] is row g, columns 2t and 2t+1; a[1] row g+8; a[2], a[3] the same rows, columns 8 later; b[0] is rows 2t and
/// 2t+1 of column g, b[1] 8 rows later; d[0], d[1] are row g, columns 2t and 2t+1; d[2], d[3] row g+8.
TROUPE_DEVICE void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// d = a * b: mma from zero.
TROUPE_DEVICE void product(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%10, %10, %10, %10};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

// Each rounds once: never contracted into a fused operation.
TROUPE_DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
TROUPE_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
TROUPE_DEVICE float sub(float a, float b) { return __fsub_rn(a, b); }
TROUPE_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
/// a * b + c, rounded once.
TROUPE_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
/// To nearest even.
TROUPE_DEVICE std::uint64_t round_to_integer(float x) { return __float2ull_rn(x); }

TROUPE_DEVICE float exp(float x) { return expf(x); }
TROUPE_DEVICE float log1p(float x) { return log1pf(x); }
/// 2^x with an error of 2^-22 of it, one instruction. Results below 2^-126 are zero.
TROUPE_DEVICE float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// The larger of two numbers, in one instruction; of a number and NaN, the number.
TROUPE_DEVICE float maximum(float a, float b) { return fmaxf(a, b); }
TROUPE_DEVICE float inverse_sqrt(float x) { return 1 / sqrtf(x); }
TROUPE_DEVICE float bits_to_float(std::uint32_t bits) { return __uint_as_float(bits); }
TROUPE_DEVICE std::uint32_t float_to_bits(float x) { return __float_as_uint(x); }
/// word & mask | into, in one instruction: of two constants the compiler would make two.
TROUPE_DEVICE std::uint32_t insert_bits(std::uint32_t word, std::uint32_t mask, std::uint32_t into) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(into));
  return result;
}
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
/// Both halves of a * b, rounded to bf16, without flushing subnormal values.
TROUPE_DEVICE std::uint32_t multiply_bf16_pair(std::uint32_t a, std::uint32_t b) {
  const __nv_bfloat162 d = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                   *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const std::uint32_t*>(&d);
}

} // namespace troupe::kernels::cuda::simt
