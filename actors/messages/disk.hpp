// Prefixes kept on a disk. A scheduler that holds a request wants the missing blocks of its prompt: the block manager
// finds what is missing, a kv_mover reads it (blocks_read), and fetch_done follows in any case. What executors save,
// another kv_mover writes.
#pragma once

#include "actors/messages.hpp"
#include "runtime/scheduling/block_key.hpp"
#include "runtime/scheduling/prefix_salt.hpp"
#include "runtime/support/types.hpp"

#include <chrono>

namespace troupe {

/// Blocks of a prompt that may be on the disk.
struct kv_fetch {
  std::uint64_t request = 0;
  std::shared_ptr<const std::vector<token_id>> tokens;
  prefix_salt salt = 0;
  double recompute_ms = 0;                          // of a block; 0: not known
  std::chrono::steady_clock::time_point until = {}; // by the clock of actors; what is read later is of no use
  // The block manager fills in:
  std::int32_t first = 0;   // place of the first block that is not cached
  std::int32_t reached = 0; // blocks that a sequence can begin behind: fewer than those, with recurrent layers
  block_key before = {};    // of the last of these
};

/// To the block manager, from a scheduler.
struct prefix_wanted {
  kv_fetch_ptr what;
  kv_mover_actor reader; // to read what is missing
  scheduler_actor scheduler;
};

/// To a kv_mover, from the block manager: blocks_read follows, perhaps several times, then fetch_done.
struct blocks_missing {
  kv_fetch_ptr what;
  scheduler_actor scheduler;
};

/// To a scheduler, from the kv_mover, or from the block manager where nothing is missing.
struct fetch_done {
  std::uint64_t request = 0;
};

/// To a kv_mover, from the last executor: these are to be written.
struct images_filled {
  block_images_ptr images;
  scheduler_actor scheduler;
};

/// To the block manager, from the kv_mover: there is room for as many images more.
struct images_written {
  std::uint64_t count = 0;
  scheduler_actor scheduler;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::prefix_wanted)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::blocks_missing)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::fetch_done)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::images_filled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::images_written)
