// The sampler actor: turns a step's logits into tokens (a step_sampler in runtime/) and tells whoever needs them, in order of
// urgency: the executor, which may be waiting for them, the scheduler, then each request. Event-based on a CPU; where a
// device works by itself, detached: its stream belongs to one thread.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

sampler_actor spawn_sampler(caf::actor_system& system, const loaded_model_ptr& model);

} // namespace troupe
