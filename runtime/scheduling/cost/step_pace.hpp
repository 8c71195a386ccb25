// What prompts and answers take at the pace of one replica, in milliseconds by its own step cost. Pure functions.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"

#include <cstdint>

namespace troupe {

/// What steps cost on a replica, and how many rows they have.
struct replica_pace {
  step_cost_summary cost;
  std::int32_t step_rows = 0;
  step_shape decodes = {};
};

/// `prompts` in as many steps as they take beside what decodes.
double prefill_ms(const replica_pace& at, const step_shape& prompts);

/// A step of so many sequences, each at the mean context of those that decode, and of one more with `context`.
double decode_ms(const replica_pace& at, double sequences, double context);

} // namespace troupe
