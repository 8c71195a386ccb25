// The drafter actor: owns the draft model (runtime/execution/draft_model) and answers one request of the scheduler at a
// time. Detached: it blocks its own thread while it computes.
#pragma once

#include "actors/messages.hpp"
#include "runtime/engine/loading/loaded_model.hpp"

namespace troupe {

/// `model` has a draft.
drafter_actor spawn_drafter(caf::actor_system& system, model_replica what);

} // namespace troupe
