// The scheduler actor: owns the scheduler of runtime/scheduling, carries its block requests to the block manager and
// its plans to the executor, tells it how long steps took, and cancels requests whose actors have ended. Event-based.
#pragma once

#include "actors/messages.hpp"
#include "runtime/scheduling/swap_policy.hpp"
#include "runtime/speculation/speculator.hpp"

namespace troupe {

/// `engine` hears of what steps cost. Held weakly: the engine owns the scheduler.
using engine_addr = caf::weak_actor_ptr;

/// The other actors of the group. `drafter`: null without a draft model.
struct scheduler_peers {
  kv_block_manager_actor blocks;
  executor_actor executor;
  sampler_actor sampler;
  drafter_actor drafter = {};
};

scheduler_actor spawn_scheduler(caf::actor_system& system, scheduler_limits limits, scheduler_peers peers,
                                swap_rates rates = {}, speculation_settings speculation = {}, engine_addr engine = {});

} // namespace troupe
