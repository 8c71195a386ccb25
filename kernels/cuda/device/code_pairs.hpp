// Converts 8-bit codes in registers to bf16, exactly. The four codes of a word become two pairs, bytes (0, 2) and (1,
// 3) counted from the lowest. Only for kernels.
#pragma once

#include "kernels/cuda/device/simt.hpp"

namespace troupe::kernels::cuda {

/// Signed integers. bf16 0x4300 is 128 and its last bit is worth 1, so the lower seven bits are inserted there; the
/// sign bit turns the 128 that is subtracted into 256.
TROUPE_DEVICE std::uint32_t int8_pair(std::uint32_t word, int pair) {
  const std::uint32_t bytes = word >> 8 * pair;
  return simt::subtract_bf16_pair(simt::insert_bits(bytes, 0x007f007fu, 0x43004300u),
                                  simt::insert_bits(bytes, 0x00800080u, 0x43004300u));
}

/// The values of a pair.
TROUPE_DEVICE float first_of(std::uint32_t pair) { return simt::bits_to_float(pair << 16); }
TROUPE_DEVICE float second_of(std::uint32_t pair) { return simt::bits_to_float(pair & 0xffff0000u); }

/// E4M3: exponent and mantissa shifted by four bits are the value * 2^-120, including subnormal values. NaN, which is
/// never stored, becomes 480.
TROUPE_DEVICE std::uint32_t fp8_pair(std::uint32_t word, int pair) {
  const std::uint32_t upper = pair == 0 ? word << 8 : word; // in the upper byte of each half
  return simt::multiply_bf16_pair((upper & 0x80008000u) | (upper >> 4 & 0x07f007f0u), 0x7b807b80u);
}

} // namespace troupe::kernels::cuda
