#include "kernels/formats/f16.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace troupe::kernels {

float from_f16(std::uint16_t h) {
  const auto magnitude = std::bit_cast<float>(std::uint32_t(h & 0x7fff) << 13) * 0x1p112f; // also normalises subnormals
  const std::uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | special | std::uint32_t(h & 0x8000) << 16);
}

std::uint16_t to_f16(float x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const float magnitude = std::min(std::abs(x), 65504.0f);
  if (std::isnan(x))
    return 0x7e00;
  // Subnormal. Rounding up past the last one gives the first normal number, since codes are consecutive.
  if (magnitude < 0x1p-14f)
    return sign | static_cast<std::uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t rounded = (bits + 0xfff + (bits >> 13 & 1)) >> 13;
  return sign | static_cast<std::uint16_t>(rounded - (112u << 10));
}

} // namespace troupe::kernels
