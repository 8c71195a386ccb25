// The kv_block_manager actor: owns the block_manager of runtime/scheduling, which makes all decisions. Event-based.
#pragma once

#include "actors/messages.hpp"
#include "runtime/scheduling/blocks/block_manager.hpp"

#include <optional>

namespace troupe {

/// Gets what the block manager has counted when it ends.
using former_block_counters = std::shared_ptr<former_lives<block_counters>>;

kv_block_manager_actor spawn_kv_block_manager(caf::actor_system& system, std::int32_t blocks, bool prefix_cache,
                                              std::int32_t host_blocks = 0, former_block_counters former = {},
                                              std::optional<kept_outside> kept = {},
                                              std::optional<sent_elsewhere> sent = {},
                                              std::optional<state_snapshots> snapshots = {});

} // namespace troupe
