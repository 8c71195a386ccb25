// The guess worker: owns the guess_model of a replica and answers one request of its scheduler's guesser at a time.
// Detached: it blocks its own thread while it computes.
#pragma once

#include "actors/messages.hpp"
#include "runtime/engine/loading/loaded_model.hpp"

namespace troupe {

/// The model has a guess_model.
guess_worker_actor spawn_guess_worker(caf::actor_system& system, model_replica what);

} // namespace troupe
