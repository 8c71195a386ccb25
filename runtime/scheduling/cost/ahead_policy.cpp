#include "runtime/scheduling/cost/ahead_policy.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr double weight_of_last = 0.1;
constexpr double longest_gap = 4;    // in times of the step: whatever takes longer is no matter of planning
constexpr int most_since_held = 256; // steps, before what holding back costs is measured again

} // namespace

void ahead_policy::gap::add(double value) {
  ms = known ? ms + weight_of_last * (value - ms) : value;
  known = true;
}

void ahead_policy::finished(bool ahead, double gap_ms, double computed_ms) {
  if (!(computed_ms > 0))
    return;
  (ahead ? ahead_ : held_).add(std::clamp(gap_ms, 0.0, longest_gap * computed_ms));
  since_held_ = ahead ? since_held_ + 1 : 0;
}

// Sequences left out are in one of 1 + more_ steps: each is delayed by the others. In the same time each of the others
// is spared the gap before every step.
bool ahead_policy::leaves_out(const step_cost& cost, const step_shape& rest, int left_out, int others) const {
  if (!held_.known || !cost.known() || since_held_ >= most_since_held || others == 0)
    return false;
  const auto spared = (1 + more_) * (held_.ms - ahead_.ms);
  return others * spared > left_out * more_ * cost.expected_ms(rest);
}

} // namespace troupe
