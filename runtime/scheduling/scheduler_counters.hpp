// What a scheduler counts: of steps, rows, tokens and guesses.
#pragma once

#include "runtime/scheduling/step_cost.hpp"

#include <cstdint>

namespace troupe {

struct scheduler_counters {
  std::uint64_t running = 0, waiting = 0, paused = 0; // sequences
  std::uint64_t steps = 0, prefill_rows = 0, decode_rows = 0, discarded_rows = 0;
  std::uint64_t prompt_tokens = 0, generated_tokens = 0, preemptions = 0;
  std::uint64_t drafts = 0, draft_tokens = 0, accepted_tokens = 0; // of speculation: proposals, their guesses
  std::int32_t step_rows = 0;                                      // that a step may have now
  step_cost_summary cost;
};

} // namespace troupe
