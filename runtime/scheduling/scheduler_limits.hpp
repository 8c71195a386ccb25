// What a scheduler may do at most. Plain values, from the options and the memory plan.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe {

struct scheduler_limits {
  std::int32_t step_tokens = 512; // rows of a step
  std::int32_t max_sequences = 64;
  std::int32_t max_queue = 1024; // waiting requests, beyond those for which a slot is free
  std::int32_t steps_ahead = 2;  // plans in flight at once, with one stage
  std::int32_t stages = 1;       // that a step passes through, each while the next step is in the one before it
  std::int32_t microbatches = 0; // of the running sequences; 0: as many as steps cost least with
  bool measured_budget = false;  // steps of fewer rows than step_tokens if those are efficient enough
  double step_target_ms = 0;     // that a step may take; 0: no target
  double max_wait_ms = 0;        // that a request may wait for its first rows; 0: no limit
  // Lengths of a sequence beyond which all its positions are rotated otherwise, so that it is computed again
  // (LongRoPE); ascending
  std::vector<std::int32_t> rope_borders = {};
  bool whole_prompts = false;     // an encoder's: each is computed in one step, and none of its blocks serves another
  bool recurrent = false;         // sequences have states, one for each slot
  std::int32_t most_guesses = 64; // of a sequence in a step
  bool trees = true;              // of guesses can be computed: whoever runs steps copies tokens between blocks
};

} // namespace troupe
