// FP8 in the E4M3 format of the Open Compute Project (OFP8, "FN"): a sign, 4 bits of exponent with bias 7, 3 of
// mantissa; no infinities, 0x7f and 0xff are NaN, the largest number is 448. Exact arithmetic on bits, the same on host
// and device.
#pragma once

#include <bit>
#include <cstdint>

namespace troupe::kernels {

inline constexpr float largest_e4m3 = 448;

/// To nearest, ties to even. Too large values, infinities and NaN become the largest number of their sign.
constexpr std::uint8_t to_e4m3(float x) {
  const auto sign = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(x) >> 24 & 0x80);
  const float magnitude = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
  if (!(magnitude < largest_e4m3))
    return sign | 0x7e;
  // Subnormal: steps of 2^-9. Rounding up past the last one gives the code of the first normal number.
  if (magnitude < 0x1p-6f)
    return sign | static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(magnitude + 0x1p14f));
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t rounded = bits + 0x7ffffu + (bits >> 20 & 1);
  return sign | static_cast<std::uint8_t>((rounded >> 20) - (120u << 3));
}

/// Exact.
constexpr float from_e4m3(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80) << 24;
  if ((code & 0x7f) == 0x7f)
    return std::bit_cast<float>(sign | 0x7fc00000u);
  return std::bit_cast<float>(sign | static_cast<std::uint32_t>(code & 0x7f) << 20) * 0x1p120f;
}

} // namespace troupe::kernels
