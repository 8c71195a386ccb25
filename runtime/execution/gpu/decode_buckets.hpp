// How many rows a decode step is padded to, so that few different steps are recorded.
#pragma once

namespace troupe {

/// The least of 1, 2, 4, 8, 16, 24, 32, ... that holds `rows`.
constexpr int bucket_of(int rows) {
  if (rows > 8)
    return (rows + 7) / 8 * 8;
  int bucket = 1;
  while (bucket < rows)
    bucket *= 2;
  return bucket;
}

} // namespace troupe
