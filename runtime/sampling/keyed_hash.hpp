// Pseudo-random functions of tokens under a secret key. SipHash turns the tokens before a place into a seed, two rounds
// of a 32-bit mixer turn seed and id into a value, cheaply enough for every id of a vocabulary.
#pragma once

#include "runtime/support/types.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <span>

namespace troupe::keyed {

using hash_key = std::array<std::uint64_t, 2>;

/// SipHash-2-4 (Aumasson, Bernstein 2012).
std::uint64_t siphash(const hash_key& key, std::span<const std::uint8_t> bytes);

/// A bijection of 32-bit words ("lowbias32", Wellons: hash-prospector).
constexpr std::uint32_t mix(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

/// Uniform over 32-bit words.
constexpr std::uint32_t value_of(std::uint32_t id, std::uint64_t seed) {
  return mix(mix(id ^ static_cast<std::uint32_t>(seed)) ^ static_cast<std::uint32_t>(seed >> 32));
}

} // namespace troupe::keyed
