// Random numbers of strategies of groups, which draw several tokens at one position. They share the key and the position
// of random_bits(), whose counter ends with 0.
#pragma once

#include "runtime/sampling/philox.hpp"

#include <cstdint>

namespace troupe {

struct random_pair {
  std::uint64_t choice; // 64 bits
  double uniform;       // above 0 and below 1
};

/// The numbers of draw number `draw` among the continuations of the `place`-th running sequence.
constexpr random_pair random_numbers(std::uint64_t seed, std::uint64_t position, std::uint32_t place,
                                     std::uint32_t draw) {
  const auto words = philox4x32_10(
    {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), place, draw + 1},
    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const auto second = std::uint64_t{words[2]} << 32 | words[3];
  return {std::uint64_t{words[0]} << 32 | words[1], (static_cast<double>(second >> 12) + 0.5) * 0x1p-52};
}

} // namespace troupe
