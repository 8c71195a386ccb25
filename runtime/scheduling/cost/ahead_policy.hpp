// Decides whether the next step is planned while another is in flight if that means leaving some sequences out, because
// their next positions depend on its outcome. Left out, they get a token only every other step; held back, everybody
// idles between two steps, until the outcome was booked and the next plan has arrived. So they are left out where the
// others, taken together, would idle for longer than those left out are delayed. Results never depend on it.
// Single-threaded.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"

#include <cstdint>

namespace troupe {

class ahead_policy {
public:
  explicit ahead_policy(std::int32_t steps_ahead) : more_(steps_ahead - 1) {}

  /// A step is over. `gap_ms`: before it, in which nothing was computed; `ahead`: it was planned while another was in
  /// flight.
  void finished(bool ahead, double gap_ms, double computed_ms);

  /// `rest`: the step as it would be without `left_out` sequences, with that many `others`.
  bool leaves_out(const step_cost& cost, const step_shape& rest, int left_out, int others) const;

private:
  /// Mean of recent gaps.
  struct gap {
    double ms = 0;
    bool known = false;
    void add(double value);
  };

  int more_; // steps that can be planned ahead of one
  gap ahead_, held_;
  int since_held_ = 0; // steps
};

} // namespace troupe
