// The kv_mover actor: one thread between the files of kept blocks (a kv_store of runtime/kv) and a replica. A replica
// whose model keeps prefixes on a disk has two, one that reads and one that writes, so that neither waits for the
// other. Detached: it waits for the disk. What the disk does or refuses ends nothing.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// `blocks` adopts what is read, and has more to save when something was written. `engine`, held weakly, hears of
/// trouble.
kv_mover_actor spawn_kv_mover(caf::actor_system& system, loaded_model_ptr model, kv_block_manager_actor blocks,
                              caf::weak_actor_ptr engine);

} // namespace troupe
