// The engine actor: supervisor of one model's company. Has the model loaded by a thread of its own while it goes on
// answering, spawns scheduler, block manager, executor and sampler when that is done, shows requests the way in, watches all
// of them, and on its own exit cancels what runs and ends the company. Event-based.
#pragma once

#include "actors/messages.hpp"
#include "runtime/engine_options.hpp"

namespace troupe {

/// `on_status` hears of progress (on the loader's thread), then of ready, failed or stopped with the model where there is
/// one (on the actor's).
using engine_listener = std::function<void(const load_status&, const loaded_model_ptr&)>;

engine_actor spawn_engine(caf::actor_system& system, engine_options options, engine_listener on_status);

} // namespace troupe
