// How long a new request would wait: the slots that those who run and those ahead of it in the queue give back, one
// after another as their answers are expected to end, at the pace of full steps; and all prompts ahead. KV blocks that
// run short before slots do are not foreseen. Pure.
#pragma once

#include "runtime/scheduling/cost/step_pace.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// What a request takes, as far as it is expected.
struct expected_work {
  step_shape prompt = {}; // rows of it, not cached
  double answer = 0;      // tokens of each sequence; 0: not known
  std::int32_t slots = 1; // that it needs at once
};

struct queue_outlook {
  replica_pace pace;
  std::int32_t slots = 0;           // in all
  std::vector<double> left = {};    // tokens that each running answer is expected to take still; 0: not known
  step_shape prompts = {};          // of those that run, what is left of them
  std::vector<expected_work> ahead; // in the queue, in its order
};

struct wait_forecast {
  double start_ms = 0;       // until it has a slot, and all prompts ahead are computed
  double first_token_ms = 0; // until its first token
  double token_ms = 0;       // each further one
};

wait_forecast forecast(const queue_outlook& at, const expected_work& own);

} // namespace troupe
