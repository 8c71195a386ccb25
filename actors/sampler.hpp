// The sampler actor: turns a step's logits into tokens (a step_sampler of runtime/execution) and sends them in order of
// urgency: to the executor, which may be waiting, to the scheduler, then to each request. Event-based on a CPU, where an
// executor that waits for the tokens of few sequences runs it (companions.hpp); detached for an asynchronous device, whose
// stream belongs to one thread.
#pragma once

#include "actors/messages.hpp"
#include "runtime/engine/loading/loaded_model.hpp"

#include <memory>

namespace troupe {

sampler_actor spawn_sampler(caf::actor_system& system, model_replica what);

} // namespace troupe
