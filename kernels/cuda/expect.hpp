// What callers of ops promise, checked.
#pragma once

#include <stdexcept>

namespace troupe::kernels::cuda {

inline void expect(bool holds, const char* message) {
  if (!holds)
    throw std::invalid_argument(message);
}

} // namespace troupe::kernels::cuda
