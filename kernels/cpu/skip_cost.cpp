#include "kernels/cpu/skip_cost.hpp"

#include <algorithm>
#include <bit>

namespace troupe::kernels {

namespace {

/// How much longer a byte takes that is read in pieces, until it is known.
constexpr double assumed_ratio = 2.5;

/// Products between two of which the other way is tried; and how much worse it may seem.
constexpr unsigned retried_every = 256;
constexpr double retried_below = 2;

constexpr double weight_of_new = 0.1;

/// A mean of what was measured that soon forgets interruptions.
void learn(double& mean, double value) {
  mean = mean == 0 ? value : mean + weight_of_new * (std::min(value, 3 * mean) - mean);
}

} // namespace

std::size_t skip_cost::class_of(std::size_t rows) {
  return std::min<std::size_t>(std::bit_width(std::max<std::size_t>(rows, 1) - 1), 15);
}

double skip_cost::limit(std::size_t rows) const {
  const auto& known = classes_[class_of(rows)];
  if (known.whole == 0 || known.skipped == 0)
    return 1 / assumed_ratio;
  return known.whole / known.skipped;
}

bool skip_cost::skips(std::size_t rows, double share) {
  auto& known = classes_[class_of(rows)];
  const double most = limit(rows);
  const bool better = share < most;
  if (known.whole == 0 && known.skipped != 0) // once, to compare with
    return share * 2 > most ? false : better;
  if (++known.asked % retried_every != 0)
    return better;
  const bool close = better ? share * retried_below > most : share < most * retried_below && share < 1;
  return better != close;
}

void skip_cost::measured(std::size_t rows, double share, bool skipped, double seconds_per_byte) {
  auto& known = classes_[class_of(rows)];
  if (!skipped)
    learn(known.whole, seconds_per_byte);
  else if (share > 0)
    learn(known.skipped, seconds_per_byte / share);
}

} // namespace troupe::kernels
