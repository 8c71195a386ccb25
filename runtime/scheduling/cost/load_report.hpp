// How busy a replica is, as its scheduler sees it: what the router weighs. Plain values, sent only where there are
// several replicas to choose from.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"
#include "runtime/scheduling/scheduler_counters.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// An answer that has ended, of a request by its number; `cut`: at its limit.
struct ended_answer {
  std::uint64_t request = 0;
  std::int32_t tokens = 0;
  bool cut = false;
};

struct load_report {
  static constexpr std::size_t most_left = 64;    // entries of `left`: those that end first
  static constexpr std::size_t most_ended = 1024; // of `ended`

  int replica = 0;
  std::uint64_t life = 0;                   // of the replica: it is another one after each start
  std::vector<std::uint64_t> received = {}; // requests that came since the last report, and are part of this one

  std::int32_t running = 0, waiting = 0; // sequences; those to be forked from a waiting one are counted
  std::int32_t free_slots = 0;
  std::int32_t queue_room = 0;                     // requests that it would take, beside all those
  std::int32_t free_blocks = 0, cached_blocks = 0; // cached: unreferenced
  step_shape prompts = {};       // what is left to compute of prompts, as one step; cached parts as they were expected
  step_shape decodes = {};       // the decoding rows of a step
  std::int32_t step_rows = 0;    // that a step may have now
  std::vector<double> left = {}; // tokens that running answers are still expected to take, ascending; see most_left
  double growth = 0;             // tokens that they will take at most, with a probability of 0.8 each
  std::uint64_t generated_tokens = 0;   // since its start
  std::vector<ended_answer> ended = {}; // since the last report
  step_cost_summary cost = {};
};

} // namespace troupe
