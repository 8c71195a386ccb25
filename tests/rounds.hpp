// How long tests of chance run.
#pragma once

#include <algorithm>

namespace troupe {

/// Rounds of a test of chance: a tenth under a sanitizer, which looks for faults of the code that runs, not for rare
/// outcomes.
constexpr int rounds(int usual) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::max(1, usual / 10);
#else
  return usual;
#endif
}

} // namespace troupe
