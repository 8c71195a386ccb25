// Activations to int8, in the records that quantised weights are multiplied with. All targets give the same bits. Only for
// the target units.
#pragma once

#include "kernels/cpu/isa/int_simd.hpp"
#include "kernels/cpu/target.hpp"

namespace troupe::kernels {
namespace {

/// A number for each half of a group of 32.
template <class T>
struct of_halves {
  T first, second;
};

#if defined(__AVX2__) && !defined(__AVX512F__)

/// The largest magnitudes as bits, which order NaN above all others.
inline of_halves<std::uint32_t> largest_magnitudes(const float* from) {
  const auto magnitude = [=](int i) {
    return _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 8 * i)),
                            _mm256_set1_epi32(0x7fffffff));
  };
  const auto first = _mm256_max_epu32(magnitude(0), magnitude(1)),
             second = _mm256_max_epu32(magnitude(2), magnitude(3));
  auto both = _mm256_max_epu32(_mm256_permute2x128_si256(first, second, 0x20),
                               _mm256_permute2x128_si256(first, second, 0x31));
  both = _mm256_max_epu32(both, _mm256_shuffle_epi32(both, 0x4e));
  both = _mm256_max_epu32(both, _mm256_shuffle_epi32(both, 0xb1));
  return {static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(both))),
          static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm256_extracti128_si256(both, 1)))};
}

/// codes = 32 numbers * the inverse of their half, to nearest even. Returns their sums.
inline of_halves<std::int32_t> make_codes(std::uint32_t* codes, const float* from, of_halves<float> inverse) {
  const auto words = [=](int i) {
    const auto factor = _mm256_set1_ps(i < 2 ? inverse.first : inverse.second);
    const auto rounded = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(from + 8 * i), factor), _mm256_set1_ps(magic));
    return _mm256_and_si256(_mm256_castps_si256(rounded), _mm256_set1_epi32(0xff)); // the integers are in the low bits
  };
  const auto packed = _mm256_packus_epi16(_mm256_packus_epi32(words(0), words(1)),
                                          _mm256_packus_epi32(words(2), words(3))); // halves of registers by themselves
  const auto bytes = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), bytes);
  auto sums = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
  sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e)); // of codes plus 128
  return {_mm_cvtsi128_si32(_mm256_castsi256_si128(sums)) - 16 * 128,
          _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1)) - 16 * 128};
}

#else

#if defined(__AVX512F__)

/// The largest magnitude of 16 numbers as bits, which order NaN above all others.
inline std::uint32_t largest_magnitude(const float* from) {
  return _mm512_reduce_max_epu32(_mm512_and_si512(_mm512_loadu_si512(from), _mm512_set1_epi32(0x7fffffff)));
}

/// codes = 16 numbers * inverse, to nearest even. Returns their sum.
inline std::int32_t make_codes(std::int8_t* codes, const float* from, float inverse) {
  const vec rounded = load(from) * broadcast(inverse) + broadcast(magic); // the integer is in the low bits
  const auto bytes = _mm512_cvtepi32_epi8(_mm512_castps_si512(rounded.v));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), bytes);
  return _mm512_reduce_add_epi32(_mm512_cvtepi8_epi32(bytes));
}

#elif defined(TROUPE_NEON) || defined(TROUPE_SVE)
#include "kernels/cpu/isa/arm/quantise.hpp"
#else

inline std::uint32_t largest_magnitude(const float* from) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    bits &= 0x7fffffff;
    largest = largest > bits ? largest : bits;
  }
  return largest;
}

inline std::int32_t make_codes(std::int8_t* codes, const float* from, float inverse) {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    const float rounded = from[i] * inverse + magic;
    std::uint32_t bits;
    std::memcpy(&bits, &rounded, 4);
    codes[i] = static_cast<std::int8_t>(bits);
    sum += codes[i];
  }
  return sum;
}

#endif

inline of_halves<std::uint32_t> largest_magnitudes(const float* from) {
  return {largest_magnitude(from), largest_magnitude(from + 16)};
}

inline of_halves<std::int32_t> make_codes(std::uint32_t* to, const float* from, of_halves<float> inverse) {
  auto* codes = reinterpret_cast<std::int8_t*>(to);
  return {make_codes(codes, from, inverse.first), make_codes(codes + 16, from + 16, inverse.second)};
}

#endif

/// Scale and its inverse of numbers of which none has a larger magnitude than these bits say: it becomes 127.
struct code_scale {
  float scale, inverse;

  explicit code_scale(std::uint32_t largest) {
    float most;
    std::memcpy(&most, &largest, 4);
    if (most < 1e-30f) // its inverse would overflow
      most = 0;
    scale = most / 127;
    inverse = most > 0 ? 127 / most : 0;
  }
};

/// Quantises one group of activations, codes to nearest even; each half by a scale of its own where weights have one for
/// each half, too. A number that is not finite makes the scale infinite or NaN, and so the products.
inline void quantise_group(std::uint32_t* to, const float* from, const quantised_layout& layout, int zero_code) {
  const auto [first, second] = largest_magnitudes(from);
  if (layout.parts == 1) {
    const code_scale all(first > second ? first : second);
    const auto halves = make_codes(to, from, {all.inverse, all.inverse});
    const std::int32_t sum = halves.first + halves.second;
    const float scaled_sum = all.scale * static_cast<float>(sum);
    std::memcpy(to + 8, &all.scale, 4);
    to[9] = to[10] = magic_bits - static_cast<std::uint32_t>(zero_code * sum);
    std::memcpy(to + 11, &scaled_sum, 4);
    return;
  }
  const code_scale low(first), high(second);
  const auto halves = make_codes(to, from, {low.inverse, high.inverse});
  std::memcpy(to + 8, &low.scale, 4);
  if (layout.minimum) {
    const float scaled_halves[2] = {low.scale * static_cast<float>(halves.first),
                                    high.scale * static_cast<float>(halves.second)};
    std::memcpy(to + 9, scaled_halves, sizeof scaled_halves);
  } else {
    to[9] = magic_bits - static_cast<std::uint32_t>(zero_code * halves.first);
    to[10] = magic_bits - static_cast<std::uint32_t>(zero_code * halves.second);
  }
  std::memcpy(to + 11, &high.scale, 4);
}

void quantise(weight_kind kind, std::uint32_t* to, std::size_t stride, const float* from, std::size_t groups) {
  const auto layout = layout_of(kind);
  const int zero_code = wide_codes_are_signed && layout.zero == 128 ? 0 : layout.zero;
  for (std::size_t group = 0; group < groups; ++group)
    quantise_group(to + group * stride, from + group * 32, layout, zero_code);
}

} // namespace
} // namespace troupe::kernels
