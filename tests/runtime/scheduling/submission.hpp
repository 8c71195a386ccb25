// What a test is going to submit to a scheduler.
#pragma once

#include "runtime/scheduling/request.hpp"

namespace troupe::testing {

/// A request that the test may change until it is submitted, and what an admission has beside it.
struct submission : request {
  std::uint64_t request = 0;
  bool again = false;
  std::vector<resumed_sequence> resumed = {};
  std::int32_t expected_cached = 0;
  int moves_to = -1;

  operator admission() const { // NOLINT(google-explicit-constructor)
    return {request, std::make_shared<const troupe::request>(*this), again, resumed, expected_cached, moves_to};
  }
};

} // namespace troupe::testing
