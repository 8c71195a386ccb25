// Cases that could not run: named when it happens, counted for the exit status (main.cpp).
#pragma once

#include "kernels/cuda/device.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace troupe::kernels::cuda::testing {

/// Whether skipped cases are failures: on a machine that is expected to have a GPU and its libraries.
inline bool is_required() { return std::getenv("TROUPE_CUDA_REQUIRED") != nullptr; }

/// Empty if there is a device. Asked for by main, not before: CUDA's run-time library must not be called by
/// initialisers of other units.
inline const std::string& why_no_device() {
  static const std::string why = [] {
    std::string reason;
    if (device_count(&reason) > 0)
      return std::string();
    return reason.empty() ? "there is no CUDA device" : reason;
  }();
  return why;
}

inline int& skip_count() {
  static int count = 0;
  return count;
}
inline int skipped() { return skip_count(); }

inline void report_skip(const char* test, const std::string& why) {
  std::printf("skipped, %s: %s\n", why.c_str(), test);
  ++skip_count();
}

/// For a test that finds that it cannot run; it returns afterwards.
inline void skip_this_test(const std::string& why) {
  report_skip(doctest::getContextOptions()->currentTest->m_name, why);
}

} // namespace troupe::kernels::cuda::testing
