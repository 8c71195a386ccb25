#include "runtime/techniques/beams/beam_draws.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe {

namespace {

/// The mass of the tokens that are left, in units of a token with the score `top`.
double mass_of(const drawable_beam& beam, double top) {
  if (beam.tokens->total() == 0)
    return 0;
  return std::exp(beam.score + beam.tokens->max() - top) * (static_cast<double>(beam.tokens->total()) * 0x1p-40);
}

} // namespace

std::vector<drawn_extension> draw_extensions(std::span<const drawable_beam> beams, std::size_t count,
                                             const std::function<random_pair(std::uint32_t draw)>& random) {
  auto top = -std::numeric_limits<double>::infinity();
  for (const auto& beam : beams)
    if (beam.tokens->total() > 0)
      top = std::max(top, beam.score + beam.tokens->max());
  std::vector<drawn_extension> drawn;
  while (drawn.size() < count) {
    double all = 0;
    for (const auto& beam : beams)
      all += mass_of(beam, top);
    if (!(all > 0))
      return drawn;
    const auto numbers = random(static_cast<std::uint32_t>(drawn.size()));
    auto left = numbers.uniform * all;
    std::size_t chosen = beams.size();
    for (std::size_t i = 0; i < beams.size() && (chosen == beams.size() || left >= 0); ++i)
      if (const auto mass = mass_of(beams[i], top); mass > 0) { // the last one, should sums be rounded
        chosen = i;
        left -= mass;
      }
    const auto token = beams[chosen].tokens->draw(numbers.choice);
    drawn.push_back({chosen, token.id, token.score});
  }
  return drawn;
}

} // namespace troupe
