// A request that was prefilled in one replica goes on in another. Their block managers agree on what is missing, its
// blocks follow (blocks_received), and when all are there, the request asks the engine whether it may go on there.
#pragma once

#include "actors/messages.hpp"

#include <array>

namespace troupe {

struct block_destination; // runtime/scheduling/step.hpp

/// To the other replica's block manager: offer_accepted or chain_arrived follows, or nothing.
struct blocks_offered {
  std::shared_ptr<const block_destination> what;
  std::array<std::uint64_t, 2> numerics = {}; // under which they are exchanged
  kv_sender_actor sender;
  scheduler_actor scheduler; // of the sender
};

/// To the block manager that offered them: the request's blocks are wanted from this place on.
struct offer_accepted {
  std::uint64_t request = 0;
  std::int32_t first = 0;
};

/// From the other replica's block manager to the scheduler, and from there to the request: all its blocks are there.
struct chain_arrived {
  std::uint64_t request = 0;
};

/// To the engine, from a request of that number: may it go on there? An admit_reply follows, or nothing.
struct move_wanted {
  request_actor request;
  std::uint64_t number = 0;
  route_query_ptr query;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::blocks_offered)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::offer_accepted)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::chain_arrived)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::move_wanted)
