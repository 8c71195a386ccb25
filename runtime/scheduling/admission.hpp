// A request on its way to a scheduler: which one, and how far it is. Plain values that point into no actor's state.
#pragma once

#include "runtime/scheduling/request.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// A sequence resumed after another scheduler has run it in part.
struct resumed_sequence {
  std::uint32_t index = 0;
  std::vector<token_id> emitted;
  float mirostat_mu = 0; // after the last of them
};

struct admission {
  std::uint64_t request = 0; // its number in the replica
  request_ptr asked;
  bool again = false;                    // readmitted: the queue is never too full for it
  std::vector<resumed_sequence> resumed; // unfinished sequences of the n; empty: all n, from the prompt
  std::int32_t expected_cached = 0;      // tokens of the prompt, as it was routed; for load reports alone
  int moves_to = -1;                     // the replica that its blocks are sent to meanwhile; -1: none
};

} // namespace troupe
