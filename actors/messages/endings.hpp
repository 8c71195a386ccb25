// What interrupts or ends a request before its last token. Clients pause and cancel their requests by atoms
// (messages.hpp).
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// To the engine, from a request: deadline_passed follows after so many milliseconds.
struct deadline_set {
  std::int64_t ms = 0;
  request_actor request;
};

/// To a request, from the engine: its time is over.
struct deadline_passed {};

/// To a request, from its client: its answers are long enough, or their reasoning is; or another process goes on.
struct finish_wanted {
  bool reasoning = false; // alone
  bool hands_over = false;
};

/// To the scheduler, from a request: its client's reader is slow, or has caught up.
struct request_paused {
  std::uint64_t request = 0; // its number
  bool paused = false;
};

/// To the scheduler, from a request: it goes on in another replica.
struct request_left {
  std::uint64_t request = 0; // its number here
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::deadline_set)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::deadline_passed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::finish_wanted)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request_paused)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request_left)
