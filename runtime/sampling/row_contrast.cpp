#include "runtime/sampling/row_contrast.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe {

void contrast_scores(std::span<const float> expert, std::span<const float> amateur, float alpha, float beta,
                     std::span<float> scores) {
  constexpr auto never = -std::numeric_limits<float>::infinity();
  const auto shared = std::min(amateur.size(), scores.size());
  float most = never;
  for (const auto x : scores.first(shared))
    most = std::max(most, x); // false for NaN
  const double least = static_cast<double>(most) + std::log(static_cast<double>(alpha));
  for (std::size_t i = 0; i < shared; ++i) {
    const double score = scores[i], e = expert[i], a = amateur[i];
    const bool plausible = score >= least && std::isfinite(score);
    if (!plausible)
      scores[i] = never;
    else if (std::isfinite(a))
      scores[i] = static_cast<float>(score + beta * (e - a));
  }
  std::ranges::fill(scores.subspan(shared), never);
}

} // namespace troupe
