// How long tests of chance run.
#pragma once

#include "tests/sanitized.hpp"

#include <algorithm>

namespace troupe {

/// Rounds of a test of chance: a tenth under a sanitizer, which looks for faults of the code that runs, not for rare
/// outcomes.
inline int rounds(int usual) { return testing::sanitized() ? std::max(1, usual / 10) : usual; }

} // namespace troupe
