// Sixteen 32-bit integers and dots of four codes (0 to 255) with four int8 inputs; sums are exact on every target.
// Only for the target units.
#pragma once

#include "kernels/cpu/isa/simd.hpp"

namespace troupe::kernels {
namespace {

// 8-bit codes overflow the 16-bit pair sums of VPMADDUBSW. Targets without VNNI therefore make them signed, which moves
// the code of weight 0 from 128 to 0, and multiply magnitudes. Narrower codes do not overflow.
#if defined(__AVX512F__)

struct ivec {
  __m512i v;
};

inline ivec load_ints(const void* p) { return {_mm512_loadu_si512(p)}; }
/// codes | the bits of `mask` in `high`, moved from bit `position` of each byte to bit 4.
inline ivec add_high_bits(ivec codes, ivec high, int position, int mask) {
  const auto words = (__v16su)high.v;
  const auto moved = (__m512i)(position > 4 ? words >> (position - 4) : words << (4 - position));
  return {_mm512_ternarylogic_epi32(codes.v, moved, _mm512_set1_epi8(static_cast<char>(mask)), 0xf8)};
}
inline void store_ints(void* p, ivec x) { _mm512_storeu_si512(p, x.v); }
inline ivec broadcast_word(const std::uint32_t* p) {
  int word;
  std::memcpy(&word, p, 4);
  return {_mm512_set1_epi32(word)};
}
inline vec as_floats(ivec x) { return {_mm512_castsi512_ps(x.v)}; }
inline ivec low_halves(ivec x) { return {_mm512_and_si512(x.v, _mm512_set1_epi8(15))}; }
inline ivec high_halves(ivec x) { return low_halves({_mm512_srli_epi32(x.v, 4)}); }
/// The bits of `mask` in bytes that are moved down by `shift` bits (up if negative).
inline ivec bits_of(ivec x, int shift, int mask) {
  const auto words = (__v16su)x.v;
  const auto moved = (__m512i)(shift > 0 ? words >> shift : words << -shift);
  return {_mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(mask)))};
}
inline ivec joined(ivec x, ivec y) { return {_mm512_or_si512(x.v, y.v)}; }
/// Entries of a table of 16 bytes at places 0 to 15.
inline ivec looked_up(const std::uint8_t* table, ivec places) {
  const auto entries = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(entries, places.v)};
}
inline vec load_bytes(const std::int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
/// Sixteen numbers in E4M3 times 2^-8, exactly. Moved up by 7 bits, all but their signs are such a number in f16.
inline vec load_e4m3(const std::int8_t* p) {
  const auto words = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {
    _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(static_cast<short>(0xbfff))))};
}

#if defined(__AVX512VNNI__)

inline constexpr bool wide_codes_are_signed = false;
using wide_codes = ivec;
inline ivec signed_wide(ivec codes) { return codes; }
inline wide_codes prepare_wide(ivec codes) { return codes; }
inline ivec dot(ivec sum, ivec codes, ivec x) { return {_mm512_dpbusd_epi32(sum.v, codes.v, x.v)}; }

#else

inline constexpr bool wide_codes_are_signed = true;
struct wide_codes {
  __m512i magnitudes;
  __mmask64 negative;
};
inline ivec signed_wide(ivec codes) { return {_mm512_xor_si512(codes.v, _mm512_set1_epi8(-128))}; }
inline wide_codes prepare_wide(ivec values) { return {_mm512_abs_epi8(values.v), _mm512_movepi8_mask(values.v)}; }
inline ivec dot(ivec sum, ivec codes, ivec x) {
  const auto pairs = _mm512_maddubs_epi16(codes.v, x.v);
  return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
}
inline ivec dot(ivec sum, const wide_codes& codes, ivec x) {
  const auto signed_x = _mm512_mask_sub_epi8(x.v, codes.negative, _mm512_setzero_si512(), x.v);
  return dot(sum, ivec{codes.magnitudes}, {signed_x});
}

#endif

#elif defined(__AVX2__)

struct ivec {
  __m256i a, b;
};

inline ivec load_ints(const void* p) {
  const auto* halves = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
inline void store_ints(void* p, ivec x) {
  auto* halves = static_cast<__m256i*>(p);
  _mm256_storeu_si256(halves, x.a);
  _mm256_storeu_si256(halves + 1, x.b);
}
inline ivec broadcast_word(const std::uint32_t* p) {
  int word;
  std::memcpy(&word, p, 4);
  return {_mm256_set1_epi32(word), _mm256_set1_epi32(word)};
}
inline vec as_floats(ivec x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline ivec low_halves(ivec x) {
  const auto mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
inline ivec high_halves(ivec x) { return low_halves({_mm256_srli_epi32(x.a, 4), _mm256_srli_epi32(x.b, 4)}); }
/// The bits of `mask` in bytes that are moved down by `shift` bits (up if negative).
inline ivec bits_of(ivec x, int shift, int mask) {
  const auto moved = [&](__m256i half) {
    const auto words = (__v8su)half;
    return _mm256_and_si256((__m256i)(shift > 0 ? words >> shift : words << -shift),
                            _mm256_set1_epi8(static_cast<char>(mask)));
  };
  return {moved(x.a), moved(x.b)};
}
inline ivec joined(ivec x, ivec y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
/// Entries of a table of 16 bytes at places 0 to 15.
inline ivec looked_up(const std::uint8_t* table, ivec places) {
  const auto entries = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(entries, places.a), _mm256_shuffle_epi8(entries, places.b)};
}
inline __m256i high_bits(__m256i high, int position, int mask) {
  const auto words = (__v8su)high;
  const auto moved = (__m256i)(position > 4 ? words >> (position - 4) : words << (4 - position));
  return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(mask)));
}
/// codes | the bits of `mask` in `high`, moved from bit `position` of each byte to bit 4.
inline ivec add_high_bits(ivec codes, ivec high, int position, int mask) {
  return {_mm256_or_si256(codes.a, high_bits(high.a, position, mask)),
          _mm256_or_si256(codes.b, high_bits(high.b, position, mask))};
}
inline __m256 load_8_bytes(const std::int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline vec load_bytes(const std::int8_t* p) { return {load_8_bytes(p), load_8_bytes(p + 8)}; }
/// Sixteen numbers in E4M3 times 2^-8, exactly. Moved up by 7 bits, all but their signs are such a number in f16. That is
/// converted from the stack: from registers each half would be shuffled first, and the shuffles of four vectors would take
/// longer than all else.
inline vec load_e4m3(const std::int8_t* p) {
  const auto words = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  alignas(32) std::uint16_t numbers[lanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(numbers),
                     _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(static_cast<short>(0xbfff))));
  asm("" : "+m"(numbers)); // or GCC would take the halves from the register
  return load_f16(numbers);
}

#if defined(__AVXVNNI__)

inline constexpr bool wide_codes_are_signed = false;
using wide_codes = ivec;
inline ivec signed_wide(ivec codes) { return codes; }
inline wide_codes prepare_wide(ivec codes) { return codes; }
inline ivec dot(ivec sum, ivec codes, ivec x) {
  return {_mm256_dpbusd_avx_epi32(sum.a, codes.a, x.a), _mm256_dpbusd_avx_epi32(sum.b, codes.b, x.b)};
}

#else

#define TROUPE_PAIR_SUMS 1

/// 16-bit sums of two or more products of codes below 64 with inputs.
struct pair_sums {
  __m256i a, b;
};
inline pair_sums pairs(ivec codes, ivec x) {
  return {_mm256_maddubs_epi16(codes.a, x.a), _mm256_maddubs_epi16(codes.b, x.b)};
}
/// Keeps a chain of sums in order: GCC would make it a tree that needs more registers than there are.
inline __m256i in_order(__m256i sum) {
  asm("" : "+x"(sum));
  return sum;
}
inline pair_sums operator+(pair_sums p, pair_sums q) {
  return {in_order(_mm256_add_epi16(p.a, q.a)), in_order(_mm256_add_epi16(p.b, q.b))};
}
/// The number of lines to sum in 16 bits: products are below 2^bits * 127.
constexpr int pair_lines(int code_bits) { return 32767 / (((1 << code_bits) - 1) * 127 * 2); }
/// sum + the sums of both pairs.
inline ivec add_pairs(ivec sum, pair_sums p) {
  const auto ones = _mm256_set1_epi16(1);
  return {in_order(_mm256_add_epi32(sum.a, _mm256_madd_epi16(p.a, ones))),
          in_order(_mm256_add_epi32(sum.b, _mm256_madd_epi16(p.b, ones)))};
}

inline constexpr bool wide_codes_are_signed = true;
struct wide_codes {
  ivec values, magnitudes;
};
inline ivec signed_wide(ivec codes) {
  const auto flip = _mm256_set1_epi8(-128);
  return {_mm256_xor_si256(codes.a, flip), _mm256_xor_si256(codes.b, flip)};
}
inline wide_codes prepare_wide(ivec values) { return {values, {_mm256_abs_epi8(values.a), _mm256_abs_epi8(values.b)}}; }
inline __m256i dot_half(__m256i sum, __m256i codes, __m256i x) {
  return in_order(_mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1))));
}
inline ivec dot(ivec sum, ivec codes, ivec x) { return {dot_half(sum.a, codes.a, x.a), dot_half(sum.b, codes.b, x.b)}; }
inline ivec dot(ivec sum, const wide_codes& codes, ivec x) {
  return {dot_half(sum.a, codes.magnitudes.a, _mm256_sign_epi8(x.a, codes.values.a)),
          dot_half(sum.b, codes.magnitudes.b, _mm256_sign_epi8(x.b, codes.values.b))};
}

#endif

#elif defined(TROUPE_SVE)
#include "kernels/cpu/isa/arm/sve_ints.hpp"
#elif defined(TROUPE_NEON)
#include "kernels/cpu/isa/arm/neon_ints.hpp"
#else

struct ivec {
  quad_bits q[4]; // wraps
};

template <class Op>
[[gnu::always_inline]] inline ivec each_int(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}

[[gnu::always_inline]] inline ivec load_ints(const void* p) {
  ivec to;
  std::memcpy(to.q, p, sizeof to.q);
  return to;
}
[[gnu::always_inline]] inline void store_ints(void* p, const ivec& x) { std::memcpy(p, x.q, sizeof x.q); }
[[gnu::always_inline]] inline ivec broadcast_word(const std::uint32_t* p) {
  return each_int([x = *p](int) { return quad_bits{x, x, x, x}; });
}
[[gnu::always_inline]] inline vec as_floats(const ivec& x) {
  return each([&](int i) { return (quad)x.q[i]; });
}
[[gnu::always_inline]] inline ivec low_halves(const ivec& x) {
  return each_int([&](int i) { return x.q[i] & 0x0f0f0f0f; });
}
[[gnu::always_inline]] inline ivec high_halves(const ivec& x) {
  return each_int([&](int i) { return x.q[i] >> 4 & 0x0f0f0f0f; });
}
/// The bits of `mask` in bytes that are moved down by `shift` bits (up if negative).
[[gnu::always_inline]] inline ivec bits_of(const ivec& x, int shift, int mask) {
  const std::uint32_t masks = static_cast<std::uint32_t>(mask) * 0x01010101;
  return each_int([&](int i) { return (shift > 0 ? x.q[i] >> shift : x.q[i] << -shift) & masks; });
}
[[gnu::always_inline]] inline ivec joined(const ivec& x, const ivec& y) {
  return each_int([&](int i) { return x.q[i] | y.q[i]; });
}
/// Entries of a table of 16 bytes at places 0 to 15.
inline ivec looked_up(const std::uint8_t* table, const ivec& places) {
  alignas(64) std::uint8_t bytes[4 * lanes];
  store_ints(bytes, places);
  for (auto& byte : bytes)
    byte = table[byte & 15];
  return load_ints(bytes);
}
/// codes | the bits of `mask` in `high`, moved from bit `position` of each byte to bit 4.
[[gnu::always_inline]] inline ivec add_high_bits(const ivec& codes, const ivec& high, int position, int mask) {
  return joined(codes, bits_of(high, position - 4, mask));
}
inline vec load_bytes(const std::int8_t* p) {
  return each([=](int i) { return i *= 4, quad{float(p[i]), float(p[i + 1]), float(p[i + 2]), float(p[i + 3])}; });
}

inline constexpr bool wide_codes_are_signed = false;
using wide_codes = ivec;
inline ivec signed_wide(const ivec& codes) { return codes; }
inline wide_codes prepare_wide(const ivec& codes) { return codes; }
/// Products of a code and an input fit 16 bits: those of even bytes, then of odd ones.
[[gnu::always_inline]] inline ivec dot(const ivec& sum, const ivec& codes, const ivec& x) {
  typedef std::int16_t shorts __attribute__((vector_size(16)));
  typedef std::uint16_t words __attribute__((vector_size(16)));
  typedef std::int32_t ints __attribute__((vector_size(16)));
  return each_int([&](int i) {
    const auto c = (words)codes.q[i], s = (words)x.q[i];
    const auto even = (quad_bits)((shorts)(c & 0xff) * ((shorts)(s << 8) >> 8));
    const auto odd = (quad_bits)((shorts)(c >> 8) * ((shorts)s >> 8));
    const auto both = [](quad_bits p) { return (quad_bits)(((ints)(p << 16) >> 16) + ((ints)p >> 16)); };
    return sum.q[i] + both(even) + both(odd);
  });
}

#endif

#if !defined(__AVX2__) && !defined(TROUPE_NEON) && !defined(TROUPE_SVE)

/// Sixteen numbers in E4M3 times 2^-8, exactly.
inline vec load_e4m3(const std::int8_t* p) {
  alignas(64) float all[lanes];
  for (int i = 0; i < lanes; ++i) {
    const auto code = static_cast<std::uint32_t>(static_cast<std::uint8_t>(p[i]));
    const std::uint32_t bits = (code & 0x80) << 24 | (code & 0x7f) << 20;
    std::memcpy(&all[i], &bits, sizeof bits);
    all[i] *= 0x1p112f; // which also makes subnormal numbers normal
  }
  return load(all);
}

#endif

// Integers become floats for free: a sum starts at the bits of 1.5 * 2^23, so its bits, read as a float, are that plus
// the integer. The product with a scale is then one FMA with a single rounding, because scales have at most 20
// significant bits.

inline constexpr float magic = 0x1.8p23f;
inline constexpr std::uint32_t magic_bits = 0x4b400000;

#if defined(__AVX512F__)
inline ivec add_magic(ivec x) { return {_mm512_add_epi32(x.v, _mm512_set1_epi32(magic_bits))}; }
#endif

#if defined(__FMA__) || defined(TROUPE_NEON) || defined(TROUPE_SVE)

struct scale {
  vec value, offset;
};
inline scale make_scale(const vec& value) { return {value, value * broadcast(-magic)}; }
inline vec scaled(const ivec& sum, const scale& by) { return fma(as_floats(sum), by.value, by.offset); }

#else

struct scale {
  vec value;
};
inline scale make_scale(const vec& value) { return {value}; }
inline vec scaled(const ivec& sum, const scale& by) { return (as_floats(sum) - broadcast(magic)) * by.value; }

#endif

} // namespace
} // namespace troupe::kernels
