// The range of a number that clients may give. Plain data.
#pragma once

namespace troupe {

struct number_range {
  double least = 0;
  double most = 0;
  bool above_least = false; // `least` itself is excluded
};

} // namespace troupe
