// What a replica is for, where prompts and answers are computed by replicas of their own.
#pragma once

#include <cstdint>

namespace troupe {

enum class replica_role : std::uint8_t {
  any,     // computes requests from their prompts to their ends
  prefill, // computes prompts, whose requests go on elsewhere, and answers where that is expected to be faster
  decode,  // computes answers, and prompts where that is expected to be faster for all
};

} // namespace troupe
