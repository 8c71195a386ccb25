// Draws extensions for beam sampling, without replacement. Each has the probability that the softmax of scores gives it
// among all extensions of all beams that are left.
#pragma once

#include "runtime/sampling/groups/random_pair.hpp"
#include "runtime/sampling/groups/weighted_draws.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace troupe {

/// A beam, and what may follow it.
struct drawable_beam {
  double score = 0; // of the beam
  weighted_draws* tokens = nullptr;
};

struct drawn_extension {
  std::size_t beam = 0;
  token_id id = 0;
  double score = 0; // of the token
};

/// Draws at most `count` of them; `random(draw)` are the numbers of draw number `draw`.
std::vector<drawn_extension> draw_extensions(std::span<const drawable_beam> beams, std::size_t count,
                                             const std::function<random_pair(std::uint32_t draw)>& random);

} // namespace troupe
