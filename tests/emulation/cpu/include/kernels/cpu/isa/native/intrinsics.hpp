// Shadows the header of the same path in emulated target units. Emulates instructions that the compiler flags exclude,
// so that the targets for AVX-512 BF16 and AMX run on AVX-512 with VNNI, and the one for AVX-VNNI on AVX2. Results
// equal those of the instructions, including the order of sums; speed does not.
#pragma once

#include <immintrin.h>

#include <cstdint>

#if defined(__AVX512VNNI__)

#define __AVX512BF16__ 1
#if defined(TROUPE_EMULATED_AMX) // in the unit of that target alone: the kernels of AVX-512 BF16 are others
#define __AMX_BF16__ 1
#define __AMX_INT8__ 1
#endif
#define _mm512_dpbf16_ps emulated_dpbf16
#define _mm512_cvtneps_pbh emulated_cvtneps
#define _mm512_permutex2var_epi8 emulated_permutex2var

static inline __m512i emulated_flushed(__m512i x) {
  const auto denormal = _mm512_testn_epi32_mask(x, _mm512_set1_epi32(0x7f800000));
  return _mm512_mask_and_epi32(x, denormal, x, _mm512_set1_epi32(static_cast<int>(0x80000000)));
}

/// Odd inputs are added first, then even ones. Subnormals count as zero, also as sums.
static inline __m512 emulated_dpbf16(__m512 c, __m512bh a, __m512bh b) {
  const auto upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  const auto odd = [&](__m512bh x) {
    return _mm512_castsi512_ps(emulated_flushed(_mm512_and_si512((__m512i)x, upper)));
  };
  const auto even = [](__m512bh x) { return _mm512_castsi512_ps(emulated_flushed(_mm512_slli_epi32((__m512i)x, 16))); };
  const auto flushed = [](__m512 x) { return _mm512_castsi512_ps(emulated_flushed(_mm512_castps_si512(x))); };
  return flushed(_mm512_fmadd_ps(even(a), even(b), flushed(_mm512_fmadd_ps(odd(a), odd(b), flushed(c)))));
}

/// To the nearest, ties to even; NaN stays NaN.
static inline __m256bh emulated_cvtneps(__m512 from) {
  const auto x = emulated_flushed(_mm512_castps_si512(from));
  const auto odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  const auto rounded = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
  const auto nan = _mm512_cmp_ps_mask(from, from, _CMP_UNORD_Q);
  const auto all = _mm512_mask_or_epi32(rounded, nan, x, _mm512_set1_epi32(0x400000));
  return (__m256bh)_mm512_cvtepi32_epi16(_mm512_srli_epi32(all, 16));
}

/// The bytes of `a`, then `b`, at the lower 7 bits of each of `index`.
static inline __m512i emulated_permutex2var(__m512i a, __m512i index, __m512i b) {
  alignas(64) std::uint8_t from[128], at[64];
  _mm512_store_si512(from, a);
  _mm512_store_si512(from + 64, b);
  _mm512_store_si512(at, index);
  for (auto& byte : at)
    byte = from[byte & 127];
  return _mm512_load_si512(at);
}

#else

#define __AVXVNNI__ 1
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd

static inline __m256i emulated_dpbusd(__m256i sum, __m256i unsigned_bytes, __m256i signed_bytes) {
  alignas(32) std::int32_t c[8];
  alignas(32) std::uint8_t a[32];
  alignas(32) std::int8_t b[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(c), sum);
  _mm256_store_si256(reinterpret_cast<__m256i*>(a), unsigned_bytes);
  _mm256_store_si256(reinterpret_cast<__m256i*>(b), signed_bytes);
  for (int i = 0; i < 32; ++i)
    c[i / 4] += a[i] * b[i];
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(c));
}

#endif
