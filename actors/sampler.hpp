// The sampler actor: turns a step's logits into tokens (step_sampler in runtime/) and tells whoever needs them, in order of
// urgency: the executor, which may be waiting for them, the scheduler, then each request. Event-based.
#pragma once

#include "actors/messages.hpp"

#include <vector>

namespace troupe {

sampler_actor spawn_sampler(caf::actor_system& system, std::vector<token_id> eos_ids);

} // namespace troupe
