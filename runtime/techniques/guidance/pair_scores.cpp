#include "runtime/techniques/guidance/pair_scores.hpp"

#include "runtime/sampling/row_contrast.hpp"

#include <cmath>
#include <limits>

namespace troupe {

namespace {

constexpr auto impossible = -std::numeric_limits<float>::infinity();

/// log(sum(exp(row))); NaN and minus infinity count for nothing.
double log_total_of(std::span<const float> row) {
  const float most = largest_score(row);
  double total = 0;
  for (const auto x : row)
    if (x > impossible)
      total += std::exp(static_cast<double>(x) - static_cast<double>(most));
  return static_cast<double>(most) + std::log(total);
}

} // namespace

void guidance_scores(std::span<const float> prompted, std::span<const float> unprompted, float scale,
                     std::span<float> scores) {
  const double with = log_total_of(prompted), without = log_total_of(unprompted);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double p = static_cast<double>(prompted[i]) - with, u = static_cast<double>(unprompted[i]) - without;
    scores[i] = !std::isfinite(p) ? impossible : static_cast<float>(std::isfinite(u) ? scale * (p - u) + u : p);
  }
}

} // namespace troupe
