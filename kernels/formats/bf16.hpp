// Rounding to bf16. In an unnamed namespace, because each target unit compiles it for its own instruction set.
#pragma once

#include <cstdint>
#include <cstring>

namespace troupe::kernels {
namespace {

/// To nearest, ties to even; NaN stays NaN.
inline std::uint16_t to_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}

} // namespace
} // namespace troupe::kernels
