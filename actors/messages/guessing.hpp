// A scheduler asks the guess worker, one request at a time, and goes on without guesses until they come.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// To the guess worker: guesses_made follows, to this actor.
struct guesses_wanted {
  guess_request_ptr request;
  guess_reply_actor client;
};

/// To the scheduler.
struct guesses_made {
  guess_reply_ptr reply;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::guesses_wanted)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::guesses_made)
