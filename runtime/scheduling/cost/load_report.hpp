// How busy a replica is, as its scheduler sees it: what the router weighs. Plain values, sent only where there are
// several replicas to choose from.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"
#include "runtime/scheduling/scheduler_counters.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

struct load_report {
  int replica = 0;
  std::uint64_t life = 0;                   // of the replica: it is another one after each start
  std::vector<std::uint64_t> received = {}; // requests that came since the last report, and are part of this one

  std::int32_t running = 0, waiting = 0; // sequences; those to be forked from a waiting one are counted
  std::int32_t free_slots = 0;
  std::int32_t queue_room = 0;                     // requests that it would take, beside all those
  std::int32_t free_blocks = 0, cached_blocks = 0; // cached: unreferenced
  step_shape prompts = {};    // what is left to compute of prompts, as one step; cached parts as they were expected
  step_shape decodes = {};    // the decoding rows of a step
  std::int32_t step_rows = 0; // that a step may have now
  std::uint64_t generated_tokens = 0, ended_answers = 0; // since its start
  step_cost_summary cost = {};
};

} // namespace troupe
