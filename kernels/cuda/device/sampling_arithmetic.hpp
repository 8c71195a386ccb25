// The sampler's arithmetic, bit-equal to runtime/sampling/vector_passes.hpp and runtime/sampling/philox.hpp. Only for
// kernels.
#pragma once

#include "kernels/cuda/device/simt.hpp"

namespace troupe::kernels::cuda {

/// exp(-|d|) by Cephes' expf, every operation rounded separately.
TROUPE_DEVICE float exp_nonpositive(float d) {
  using simt::add, simt::mul, simt::sub;
  const std::uint32_t bits = simt::float_to_bits(d) | 0x80000000u;
  constexpr std::uint32_t floor_bits = 0xc2200000u; // -40
  d = simt::bits_to_float(bits < floor_bits ? bits : floor_bits);
  constexpr float magic = 12582912.f; // 1.5 * 2^23
  const float shifted = add(mul(d, 1.44269504f), magic);
  const float n = sub(shifted, magic);
  const float r = sub(sub(d, mul(n, 0.693359375f)), mul(n, -2.12194440e-4f));
  float p = 1.9875691500e-4f;
  p = add(mul(p, r), 1.3981999507e-3f);
  p = add(mul(p, r), 8.3334519073e-3f);
  p = add(mul(p, r), 4.1665795894e-2f);
  p = add(mul(p, r), 1.6666665459e-1f);
  p = add(mul(p, r), 5.0000001201e-1f);
  p = add(add(mul(p, mul(r, r)), r), 1.f);
  const std::uint32_t exponent = simt::float_to_bits(shifted) - 0x4b400000u + 127;
  return mul(p, simt::bits_to_float(exponent << 23));
}

/// The fixed-point weight: exp(logit - largest) * 2^40, to nearest even; the product is exact.
TROUPE_DEVICE std::uint64_t sampling_weight(float logit, float largest) {
  return simt::round_to_integer(simt::mul(exp_nonpositive(simt::sub(logit, largest)), 0x1p40f));
}

/// Maps logits to integers of the same order. NaN is lowest.
TROUPE_DEVICE std::uint32_t order_of(float x) {
  const std::uint32_t bits = simt::float_to_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return 0;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// Philox 4x32-10's first 64 bits for a sample.
TROUPE_DEVICE std::uint64_t philox_bits(std::uint64_t seed, std::uint64_t position, std::uint32_t index) {
  std::uint32_t c[4] = {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), index, 0};
  std::uint32_t k[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    const std::uint32_t next[4] = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
                                   static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    for (int i = 0; i < 4; ++i)
      c[i] = next[i];
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return std::uint64_t(c[0]) << 32 | c[1];
}

} // namespace troupe::kernels::cuda
