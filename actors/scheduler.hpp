// The scheduler actor: owns the scheduler of runtime/scheduling, carries its block requests to the block manager and
// its plans to the executor, times the steps for the swap policy, and cancels requests whose actors have ended.
// Event-based.
#pragma once

#include "actors/messages.hpp"
#include "runtime/scheduling/swap_policy.hpp"

namespace troupe {

scheduler_actor spawn_scheduler(caf::actor_system& system, scheduler_limits limits, kv_block_manager_actor blocks,
                                executor_actor executor, sampler_actor sampler, swap_rates rates = {});

} // namespace troupe
