// The drafter actor: owns the draft model (runtime/execution/draft_model) and answers one request of the scheduler at a
// time. Detached: it blocks its own thread while it computes.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// `model` has a draft.
drafter_actor spawn_drafter(caf::actor_system& system, loaded_model_ptr model);

} // namespace troupe
