// Sixteen floats in one, two or four registers, as the including translation unit is compiled. Everything is in an
// unnamed namespace, so each target has its own copy. Only for the target units.
#pragma once

#include "kernels/cpu/isa/native/intrinsics.hpp"
#include "kernels/formats/bf16.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace troupe::kernels {
namespace {

inline constexpr int lanes = 16;

#if defined(__AVX512F__)

struct vec {
  __m512 v;
};

inline vec zero() { return {_mm512_setzero_ps()}; }
inline vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, vec a) { _mm512_storeu_ps(p, a.v); }
inline vec operator+(vec a, vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline vec operator-(vec a, vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline vec operator*(vec a, vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline vec operator/(vec a, vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline vec fma(vec a, vec b, vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
/// The second operand if either is NaN.
inline vec max(vec a, vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline vec min(vec a, vec b) { return {_mm512_min_ps(a.v, b.v)}; }
/// a in the lanes [from, to), b elsewhere.
inline vec select(int from, int to, vec a, vec b) {
  const auto lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto mask = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(from)) &
    _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(to));
  return {_mm512_mask_blend_ps(mask, b.v, a.v)};
}
/// a in the lanes where b is not less than c, else 0.
inline vec where_at_least(vec a, vec b, vec c) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(b.v, c.v, _CMP_NLT_UQ), a.v)};
}
/// Whether all of a are less than b.
inline bool all_less(vec a, vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ) == 0; }
/// 2^i for `magic` = 1.5 * 2^23 + i, -126 <= i <= 127.
inline vec power_of_two(vec magic) {
  return {_mm512_castsi512_ps(
    _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(magic.v), 23), _mm512_set1_epi32(127 << 23)))};
}

inline vec load_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline vec load_bf16(const std::uint16_t* p) {
  const auto half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
/// Sixteen times to_bf16.
inline void store_bf16(std::uint16_t* p, vec x) {
  const auto bits = _mm512_castps_si512(x.v), high = _mm512_srli_epi32(bits, 16);
  const auto odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const auto rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  const auto nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const auto words = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(words));
}
/// The low and the high half of 16 words as bf16.
inline vec even_bf16(const std::uint32_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
}
inline vec odd_bf16(const std::uint32_t* p) {
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(-65536)))};
}

#elif defined(__AVX2__)

struct vec {
  __m256 a, b;
};

inline vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline vec broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, vec x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline vec operator+(vec x, vec y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline vec operator-(vec x, vec y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline vec operator*(vec x, vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline vec operator/(vec x, vec y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline vec fma(vec x, vec y, vec z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline vec max(vec x, vec y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline vec min(vec x, vec y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline __m256 select_half(int from, int to, __m256i lane, __m256 a, __m256 b) {
  const auto mask = _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32(from - 1)),
                                     _mm256_cmpgt_epi32(_mm256_set1_epi32(to), lane));
  return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask));
}
inline vec select(int from, int to, vec x, vec y) {
  return {select_half(from, to, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), x.a, y.a),
          select_half(from, to, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), x.b, y.b)};
}
inline vec where_at_least(vec a, vec b, vec c) {
  return {_mm256_and_ps(_mm256_cmp_ps(b.a, c.a, _CMP_NLT_UQ), a.a),
          _mm256_and_ps(_mm256_cmp_ps(b.b, c.b, _CMP_NLT_UQ), a.b)};
}
inline bool all_less(vec a, vec b) {
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a.a, b.a, _CMP_NLT_UQ), _mm256_cmp_ps(a.b, b.b, _CMP_NLT_UQ))) ==
    0;
}
inline __m256 power_of_two_half(__m256 magic) {
  return _mm256_castsi256_ps(
    _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(magic), 23), _mm256_set1_epi32(127 << 23)));
}
inline vec power_of_two(vec magic) { return {power_of_two_half(magic.a), power_of_two_half(magic.b)}; }

inline vec load_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
/// One shuffle of eight numbers that are loaded to both halves: a shift would take the ports of products.
inline __m256 load_bf16_half(const std::uint16_t* p) {
  const auto twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const auto upper = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, //
                                      -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
  return _mm256_castsi256_ps(_mm256_shuffle_epi8(twice, upper));
}
inline vec load_bf16(const std::uint16_t* p) { return {load_bf16_half(p), load_bf16_half(p + 8)}; }
inline __m256i bf16_words(__m256 x) {
  const auto bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
  const auto odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const auto rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  const auto nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
}
inline void store_bf16(std::uint16_t* p, vec x) {
  const auto packed = _mm256_packus_epi32(bf16_words(x.a), bf16_words(x.b)); // 0-3, 8-11, 4-7, 12-15
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline __m256i load_words(const std::uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline vec even_bf16(const std::uint32_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(load_words(p), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(load_words(p + 8), 16))};
}
inline vec odd_bf16(const std::uint32_t* p) {
  const auto high = _mm256_set1_epi32(-65536);
  return {_mm256_castsi256_ps(_mm256_and_si256(load_words(p), high)),
          _mm256_castsi256_ps(_mm256_and_si256(load_words(p + 8), high))};
}

#elif defined(TROUPE_SVE)

#include "kernels/cpu/isa/arm/sve.hpp"

#elif defined(TROUPE_NEON)

#include "kernels/cpu/isa/arm/neon.hpp"

#else

typedef float quad __attribute__((vector_size(16)));
typedef std::uint32_t quad_bits __attribute__((vector_size(16)));

struct vec {
  quad q[4];
};

template <class Op> // always inlined: in large functions GCC would call each operation
[[gnu::always_inline]] inline vec each(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}

[[gnu::always_inline]] inline vec broadcast(float x) {
  return each([=](int) { return quad{x, x, x, x}; });
}
[[gnu::always_inline]] inline vec zero() { return broadcast(0); }
[[gnu::always_inline]] inline vec load(const float* p) {
  vec x;
  std::memcpy(x.q, p, sizeof x.q);
  return x;
}
[[gnu::always_inline]] inline void store(float* p, const vec& x) { std::memcpy(p, x.q, sizeof x.q); }
[[gnu::always_inline]] inline vec operator+(const vec& x, const vec& y) {
  return each([&](int i) { return x.q[i] + y.q[i]; });
}
[[gnu::always_inline]] inline vec operator-(const vec& x, const vec& y) {
  return each([&](int i) { return x.q[i] - y.q[i]; });
}
[[gnu::always_inline]] inline vec operator*(const vec& x, const vec& y) {
  return each([&](int i) { return x.q[i] * y.q[i]; });
}
[[gnu::always_inline]] inline vec operator/(const vec& x, const vec& y) {
  return each([&](int i) { return x.q[i] / y.q[i]; });
}
[[gnu::always_inline]] inline vec fma(const vec& x, const vec& y, const vec& z) {
  return each([&](int i) { return x.q[i] * y.q[i] + z.q[i]; });
}
[[gnu::always_inline]] inline vec max(const vec& x, const vec& y) {
  return each([&](int i) { return x.q[i] > y.q[i] ? x.q[i] : y.q[i]; });
}
[[gnu::always_inline]] inline vec min(const vec& x, const vec& y) {
  return each([&](int i) { return x.q[i] < y.q[i] ? x.q[i] : y.q[i]; });
}
[[gnu::always_inline]] inline vec select(int from, int to, const vec& x, const vec& y) {
  vec r = y;
  for (int i = from < 0 ? 0 : from; i < to && i < lanes; ++i)
    r.q[i / 4][i % 4] = x.q[i / 4][i % 4];
  return r;
}
[[gnu::always_inline]] inline vec where_at_least(const vec& a, const vec& b, const vec& c) {
  vec r = a;
  for (int i = 0; i < lanes; ++i)
    if (b.q[i / 4][i % 4] < c.q[i / 4][i % 4])
      r.q[i / 4][i % 4] = 0;
  return r;
}
[[gnu::always_inline]] inline bool all_less(const vec& a, const vec& b) {
  int less = 0;
  for (int i = 0; i < lanes; ++i)
    less += a.q[i / 4][i % 4] < b.q[i / 4][i % 4];
  return less == lanes;
}
[[gnu::always_inline]] inline vec power_of_two(const vec& magic) {
  return each([&](int i) { return (quad)(((quad_bits)magic.q[i] << 23) + (127u << 23)); });
}

[[gnu::always_inline]] inline vec load_bf16(const std::uint16_t* p) {
  return each([=](int i) {
    typedef std::uint16_t quad_halves __attribute__((vector_size(8)));
    quad_halves x;
    std::memcpy(&x, p + 4 * i, sizeof x);
    return (quad)(__builtin_convertvector(x, quad_bits) << 16);
  });
}

[[gnu::always_inline]] inline vec even_bf16(const std::uint32_t* p) {
  const vec x = load(reinterpret_cast<const float*>(p));
  return each([&](int i) { return (quad)((quad_bits)x.q[i] << 16); });
}
[[gnu::always_inline]] inline vec odd_bf16(const std::uint32_t* p) {
  const vec x = load(reinterpret_cast<const float*>(p));
  return each([&](int i) { return (quad)((quad_bits)x.q[i] & 0xffff0000); });
}

/// f16 to f32: shifts into place, then scales by 2^112, which also normalises subnormals. Infinity and NaN keep their
/// exponent of all ones.
[[gnu::always_inline]] inline float f16_value(std::uint16_t h) {
  const std::uint32_t magnitude = std::uint32_t(h & 0x7fff) << 13;
  float x;
  std::memcpy(&x, &magnitude, 4);
  x *= 0x1p112f;
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((h & 0x7c00) == 0x7c00)
    bits |= 0x7f800000;
  bits |= std::uint32_t(h & 0x8000) << 16;
  std::memcpy(&x, &bits, 4);
  return x;
}
[[gnu::always_inline]] inline vec load_f16(const std::uint16_t* p) {
  return each([=](int i) {
    return quad{f16_value(p[4 * i]), f16_value(p[4 * i + 1]), f16_value(p[4 * i + 2]), f16_value(p[4 * i + 3])};
  });
}
[[gnu::always_inline]] inline void store_bf16(std::uint16_t* p, const vec& x) {
  alignas(64) float all[lanes];
  store(all, x);
  for (int i = 0; i < lanes; ++i)
    p[i] = to_bf16(all[i]);
}

#endif

// Sixteen pairs of bf16, where there is an instruction for sums of their products.
#if defined(__AVX512BF16__)

using pairs16 = __m512i;
inline pairs16 load_pairs(const void* p) { return _mm512_loadu_si512(p); }
inline pairs16 broadcast_pair(const void* p) {
  int pair;
  std::memcpy(&pair, p, 4);
  return _mm512_set1_epi32(pair);
}
/// to + the products of both halves, as VDPBF16PS rounds them.
inline vec add_pairs_of(vec to, pairs16 a, pairs16 b) { return {_mm512_dpbf16_ps(to.v, (__m512bh)a, (__m512bh)b)}; }

#endif

#if defined(__AVX512BF16__) || defined(TROUPE_SVE) ||                                                                  \
  (defined(TROUPE_NEON) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC))
#define TROUPE_PAIRS 1
#endif

// -- on top of those --------------------------------------------------------------------------------------------------

/// The first n of 16 elements, zero for the rest.
inline vec load_some(const float* p, std::size_t n) {
  if (n >= lanes)
    return load(p);
  alignas(64) float all[lanes] = {};
  std::memcpy(all, p, n * sizeof(float));
  return load(all);
}

inline void store_some(float* p, vec a, std::size_t n) {
  if (n >= lanes)
    return store(p, a);
  alignas(64) float all[lanes];
  store(all, a);
  std::memcpy(p, all, n * sizeof(float));
}

inline void store_some(std::uint16_t* p, vec a, std::size_t n) {
  if (n >= lanes)
    return store_bf16(p, a);
  alignas(64) std::uint16_t all[lanes];
  store_bf16(all, a);
  std::memcpy(p, all, n * sizeof(std::uint16_t));
}

#if defined(__AVX512F__)

/// Sum and maximum over the lanes, as a fixed tree.
inline float sum(vec a) { return _mm512_reduce_add_ps(a.v); }
inline float maximum(vec a) { return _mm512_reduce_max_ps(a.v); }

#else

/// Sum and maximum over the lanes, as a fixed tree.
inline float sum(vec a) {
  alignas(64) float x[lanes];
  store(x, a);
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      x[i] += x[i + width];
  return x[0];
}

inline float maximum(vec a) {
  alignas(64) float x[lanes];
  store(x, a);
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      x[i] = x[i] > x[i + width] ? x[i] : x[i + width];
  return x[0];
}

#endif

/// e^x to about 1 ulp, 0 below -104 and infinity above 89: Cody-Waite reduction by ln 2 and the polynomial of Cephes'
/// expf on [-ln 2 / 2, ln 2 / 2]. exp(0) is exactly 1.
inline vec exp(vec x) {
  x = min(broadcast(89.0f), max(broadcast(-104.0f), x));
  const vec magic = broadcast(0x1.8p23f); // adding it rounds to an integer in the low bits
  const vec rounded = fma(x, broadcast(1.44269504f), magic);
  const vec n = rounded - magic;
  const vec r = fma(n, broadcast(-1.42860677e-6f), fma(n, broadcast(-0.693145751953125f), x));
  vec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = fma(p * r, r, r) + broadcast(1.0f);
  // 2^n in two factors, each a normal number.
  const vec half = fma(n, broadcast(0.5f), magic);
  return p * power_of_two(half) * power_of_two(magic + (n - (half - magic)));
}

/// exp2 gives 0 below this, if anywhere.
#if defined(__AVX512DQ__)
inline constexpr float exp2_is_zero_below = -150;
#else
inline constexpr float exp2_is_zero_below = -__builtin_inff();
#endif

/// 2^x for x <= 0 to about 1 ulp, close to 0 for x < -126. exp2(0) is exactly 1. The polynomial interpolates
/// (2^f - 1) / f at the Chebyshev nodes of [0, 1].
inline vec exp2(vec x) {
#if defined(__AVX512DQ__)
  x = max(broadcast(-150.0f), x);
  const vec f{_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
#else
  x = max(broadcast(-126.0f), x);
  const vec rounded = (x - broadcast(0.5f)) + broadcast(0x1.8p23f);
  const vec f = x - (rounded - broadcast(0x1.8p23f));
#endif
  vec p = broadcast(0x1.b49554p-13f);
  p = fma(p, f, broadcast(0x1.4cb7b0p-10f));
  p = fma(p, f, broadcast(0x1.3c487cp-7f));
  p = fma(p, f, broadcast(0x1.c69f98p-5f));
  p = fma(p, f, broadcast(0x1.ebfc3ep-3f));
  p = fma(p, f, broadcast(0x1.62e430p-1f));
  p = fma(p, f, broadcast(1.0f));
#if defined(__AVX512DQ__)
  return {_mm512_scalef_ps(p.v, x.v)}; // 2^floor(x)
#else
  return p * power_of_two(rounded);
#endif
}

} // namespace
} // namespace troupe::kernels
