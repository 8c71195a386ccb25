// What the router must know of a request to choose its replica. Plain values.
#pragma once

#include "runtime/scheduling/lengths/length_model.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

struct admission; // runtime/scheduling/request.hpp

struct route_query {
  std::vector<std::uint64_t> chain = {}; // block_chain of its prompt and answer so far; empty: nothing can be cached
  std::int32_t tokens = 0;               // of these
  std::int32_t beside = 0;               // tokens that are computed in any case: of a second prompt, of other answers
  std::int32_t most_cached = 0;          // tokens that may be taken from the cache
  std::int32_t sequences = 1;
  length_signs signs = {};
  std::int32_t answered = 0;    // tokens, as far as it was answered elsewhere
  std::int32_t most_answer = 0; // tokens that may follow, of each sequence
  bool may_move = false;        // may go on in another replica once its prompt is computed
};

/// The query of a request that is about to be submitted. `rope_borders`: those of its scheduler.
route_query query_of(const admission& what, bool prefix_cache, std::span<const std::int32_t> rope_borders);

} // namespace troupe
