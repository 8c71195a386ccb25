#include "runtime/scheduling/cost/step_times.hpp"

#include <algorithm>

namespace troupe {

void step_times::planned(const step_plan& plan, time_point now) {
  in_flight_.push_back({plan.step, shape_of(plan), now});
}

std::optional<step_times::measured> step_times::finished(const step_result& result, time_point now) {
  std::optional<measured> found;
  while (!in_flight_.empty() && in_flight_.front().number <= result.step) {
    const auto& step = in_flight_.front();
    if (step.number == result.step) {
      // A step planned ahead begins when the one before it ends.
      const std::chrono::duration<double, std::milli> since = now - std::max(step.sent, last_end_);
      found = {step.shape, result.ms > 0 ? result.ms : since.count()};
    }
    in_flight_.pop_front();
    last_end_ = now;
  }
  return found;
}

} // namespace troupe
