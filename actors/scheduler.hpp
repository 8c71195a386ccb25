// The scheduler actor: owns the scheduler of runtime/scheduling, carries its block requests to the block manager and
// its plans to the executor, tells it how long steps took, and cancels requests whose actors have ended. Event-based.
#pragma once

#include "actors/messages.hpp"
#include "runtime/engine/kept_lengths.hpp"
#include "runtime/scheduling/cost/swap_policy.hpp"
#include "runtime/scheduling/scheduler_limits.hpp"
#include "runtime/techniques/guesser.hpp"

namespace troupe {

/// Where a scheduler stands: its replica and what outlives it.
struct scheduler_place {
  caf::weak_actor_ptr engine = {}; // hears of steps; held weakly, for it owns the scheduler
  int replica = 0;
  std::uint64_t life = 0;  // of the replica; 0: it is the only one, and reports no load
  std::int32_t blocks = 0; // of its pool
  std::shared_ptr<former_lives<scheduler_counters>> former = {}; // gets what it has counted when it ends
  bool sends = false;                                            // blocks of its requests to other replicas
  std::shared_ptr<kept_lengths> lengths = {};                    // what is known of answers' lengths; or null
};

/// The other actors of the group. `guess_worker`: null if guesses need none.
struct scheduler_peers {
  kv_block_manager_actor blocks;
  executor_actor executor;
  sampler_actor sampler;
  guess_worker_actor guess_worker = {};
  kv_mover_actor reader = {}; // of files of kept blocks; null: there are none
};

scheduler_actor spawn_scheduler(caf::actor_system& system, scheduler_limits limits, scheduler_peers peers,
                                swap_rates rates = {}, make_guesser guesses = {}, scheduler_place place = {});

} // namespace troupe
