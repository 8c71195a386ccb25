// Pairs steps with the time that they took: the time that their result brings, else the time from when the step could
// begin to the arrival of its result. Owned by the scheduler actor; single-threaded.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace troupe {

class step_times {
public:
  using time_point = std::chrono::steady_clock::time_point;

  struct measured {
    step_shape shape;
    double ms = 0;
  };

  /// Records that a plan was sent to the executor.
  void planned(const step_plan& plan, time_point now);

  /// Records that a step's result has arrived; steps end in the order of their plans. Nothing if the step is not known.
  std::optional<measured> finished(const step_result& result, time_point now);

private:
  struct step {
    std::uint64_t number;
    step_shape shape;
    time_point sent;
  };

  std::deque<step> in_flight_;
  time_point last_end_{};
};

} // namespace troupe
