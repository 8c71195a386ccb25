// The median of measured values, for benches.
#pragma once

#include <algorithm>
#include <vector>

namespace troupe::cli {

/// 0 of none; of an even number of values, the mean of the middle two.
inline double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  std::ranges::sort(values);
  const auto half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

} // namespace troupe::cli
