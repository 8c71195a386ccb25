// The engine actor: supervisor of one model's company. Has the model loaded by a thread of its own while it goes on
// answering, spawns scheduler, block manager, executor and sampler when that is done, shows requests the way in, watches all
// of them, and on its own exit cancels what runs and ends the company. Where one of the company dies, all of it is ended and,
// if that may help, another one started over the same weights, which requests then go on with. Event-based.
#pragma once

#include "actors/messages.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/loader.hpp"

namespace troupe {

/// `on_status` hears of progress (on the loader's thread), then of ready, failed or stopped with the model where there is
/// one (on the actor's); of ready again, with a line that says why, after each new start of the company.
using engine_listener = std::function<void(const load_status&, const loaded_model_ptr&)>;

/// What loads the model, on a thread of its own; throws failure with a sentence.
using model_loader = std::function<loaded_model_ptr(const engine_options&, const progress_sink&)>;

engine_actor spawn_engine(caf::actor_system& system, engine_options options, engine_listener on_status,
                          model_loader loader = load_model);

} // namespace troupe
