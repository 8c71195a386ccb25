// Sizes to which decode steps are padded, so that few different steps are recorded.
#pragma once

namespace troupe {

/// The smallest of 1, 2, 4, 8, 16, 24, 32, ... that is not below `rows`.
constexpr int bucket_of(int rows) {
  if (rows > 8)
    return (rows + 7) / 8 * 8;
  int bucket = 1;
  while (bucket < rows)
    bucket *= 2;
  return bucket;
}

} // namespace troupe
