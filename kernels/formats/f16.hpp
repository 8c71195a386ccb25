// IEEE half precision, converted on bits.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// The exact value of an f16.
float from_f16(std::uint16_t half);

/// To nearest, ties to even; finite values that are too large become the largest.
std::uint16_t to_f16(float x);

} // namespace troupe::kernels
