// Random numbers of the sampler: Philox 4x32-10, a pure function of key and counter. Stateless, so a sample depends on
// the seed and on its sequence and position, never on what ran before or beside it.
#pragma once

#include <array>
#include <cstdint>

namespace troupe {

using philox_counter = std::array<std::uint32_t, 4>;
using philox_key = std::array<std::uint32_t, 2>;

/// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
constexpr philox_counter philox4x32_10(philox_counter counter, philox_key key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

/// The 64 random bits that choose the token at absolute transcript position `position` (prompt length + tokens emitted
/// so far) of a request's sequence `index`. Key: the seed, low word first. Counter: position, low word first, then
/// index, then `stream` (0: the choice itself; 1: whether XTC applies). The first output word is the high half of the
/// result, the second its low half; the other two are unused.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t position, std::uint32_t index,
                                    std::uint32_t stream = 0) {
  const auto words = philox4x32_10(
    {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), index, stream},
    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return std::uint64_t{words[0]} << 32 | words[1];
}

} // namespace troupe
