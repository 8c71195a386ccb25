// A scheduler asks the drafter for guesses, one request at a time, and goes on without them until they come.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// To the drafter: tokens_drafted follows, to this actor.
struct drafts_wanted {
  draft_request_ptr request;
  draft_reply_actor client;
};

/// To the scheduler: what the draft model guesses.
struct tokens_drafted {
  draft_reply_ptr reply;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::drafts_wanted)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::tokens_drafted)
