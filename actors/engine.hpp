// The engine actor: supervisor of one model and its worker group. A thread of its own loads the model while the engine
// goes on answering. The engine spawns the group, admits requests and monitors both. If an actor of the group dies, the
// engine ends the group and, if that may help, starts another one over the same weights, in which requests resume. On
// its own exit it cancels the requests and ends the group. Event-based.
#pragma once

#include "actors/messages.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/loader.hpp"

namespace troupe {

/// Receives the progress of loading (on the loader's thread), then ready, failed or stopped (on the actor's), with the
/// model if there is one. Each restart of the worker group reports ready again, with a line that gives the reason; so
/// does news of a running engine.
using engine_listener = std::function<void(const load_status&, const loaded_model_ptr&)>;

/// Loads the model, on a thread of its own; throws failure with a sentence.
using model_loader = std::function<loaded_model_ptr(const engine_options&, const progress_sink&)>;

engine_actor spawn_engine(caf::actor_system& system, engine_options options, engine_listener on_status,
                          model_loader loader = load_model);

} // namespace troupe
