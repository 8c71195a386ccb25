// Blocks that come from outside the pool, to the block manager that adopts them. Each says whom it concerns.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// From the kv_mover, which read them from the disk.
struct blocks_read {
  block_arrival_ptr arrival;
  scheduler_actor scheduler;
};

/// From the executor of another replica, which saved them from its pool.
struct blocks_received {
  block_arrival_ptr arrival;
  scheduler_actor scheduler; // the receiver's
  scheduler_actor sender;    // the other replica's
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::blocks_read)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::blocks_received)
