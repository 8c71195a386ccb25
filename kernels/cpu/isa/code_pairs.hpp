// Converts 8-bit codes with at most 8 significant bits to bf16, exactly, by tables of their bytes. Only for target
// units; those for AVX-512 BF16 have it.
#pragma once

#include "kernels/cpu/isa/simd.hpp"

namespace troupe::kernels {
namespace {

#if defined(__AVX512BF16__)

struct byte_table {
  alignas(64) std::uint8_t low[128];
  alignas(64) std::uint8_t high[128];
};

/// bf16 of the magnitudes of codes: of E4M3, a sign and its bits, in units of 2^-8; else of two's complement.
template <bool E4m3>
inline constexpr byte_table bf16_bytes = [] {
  byte_table to = {};
  for (int code = 0; code < 128; ++code) {
    float x = static_cast<float>(code);
    if (E4m3) { // 4 bits of exponent, of which 0 is for subnormal numbers
      x = static_cast<float>(code < 8 ? 2 * code : 8 + code % 8) * 0x1p-18f;
      for (int exponent = code / 8; exponent > 0; --exponent)
        x *= 2;
    }
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    to.low[code] = static_cast<std::uint8_t>(bits >> 16);
    to.high[code] = static_cast<std::uint8_t>(bits >> 24);
  }
  return to;
}();

/// The low and the high bytes of bf16 of 64 codes.
struct bf16_halves {
  __m512i low, high;
};

template <bool E4m3>
[[gnu::always_inline]] inline bf16_halves widened_codes(__m512i codes) {
  constexpr const auto& table = bf16_bytes<E4m3>;
  const auto magnitude = E4m3 ? codes : _mm512_abs_epi8(codes); // of which look-ups take the lower 7 bits
  const auto look_up = [&](const std::uint8_t* bytes) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(bytes), magnitude, _mm512_load_si512(bytes + 64));
  };
  return {look_up(table.low),
          _mm512_ternarylogic_epi32(look_up(table.high), codes, _mm512_set1_epi32(static_cast<int>(0x80808080)),
                                    0xf8)}; // a | (b & c)
}

#endif

} // namespace
} // namespace troupe::kernels
