// How the actors of an engine come to know one another. The engine sends these, but for request_joined.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// To a replica's sampler, which sends step results to its scheduler, and to its first executor, whose saved images
/// concern it. Once, before any plan.
struct scheduler_known {
  scheduler_actor scheduler;
};

/// To a block manager, which sends offers to the other replica's, and to the last executor, which sends it images.
struct replica_known {
  int number = 0;
  kv_receiver_actor blocks;
  scheduler_actor scheduler;
};

/// To a sampler: who values the answers of searches from now on; null: nobody. The one before has ended.
struct judge_known {
  judge_actor judge;
};

/// To a sampler, from its scheduler: the tokens of this request go to this actor.
struct request_joined {
  std::uint64_t request = 0;
  request_actor client;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::scheduler_known)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::replica_known)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::judge_known)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::request_joined)
