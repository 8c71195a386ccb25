// What an engine is like at one moment, for those who watch it: its KV blocks one by one, and how busy its actors are.
// Plain values.
#pragma once

#include "runtime/scheduling/routing/replica_role.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// The actors of one kind, of all engines of the process. What messages tell is counted while someone watches.
struct actor_load {
  std::string kind;
  std::uint64_t alive = 0, spawned = 0; // more were spawned than are alive: some have ended, or were started again
  std::uint64_t handled = 0;            // messages
  std::uint64_t queued = 0;             // messages
  double waiting_ms = 0;                // since when there is always one in the queue; the oldest is not older
};

struct replica_snapshot {
  int number = 0;
  std::uint64_t restarts = 0;
  std::uint64_t blocks = 0;              // of the pool
  std::string map = {};                  // block_manager::map(); empty while it does not run
  replica_role role = replica_role::any; // that it has now; any, while it does not run
};

struct engine_snapshot {
  std::vector<replica_snapshot> replicas = {};
  std::vector<actor_load> actors = {};
};

} // namespace troupe
