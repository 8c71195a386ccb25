// The engine actor: supervisor of one model and its replicas. A thread of its own loads the model while the engine
// goes on answering. The engine starts replicas, admits requests and monitors both. If an actor of a replica dies, the
// engine ends the whole replica and, if that may help, starts it again over the same weights; its requests resume. A
// judge that ends is loaded again. On its own exit it cancels the requests and ends replicas and judge. Event-based.
#pragma once

#include "actors/messages.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/loading/loader.hpp"

namespace troupe {

/// Receives the progress of loading (on the loader's thread), then ready, failed or stopped (on the actor's), with the
/// model if there is one. Each restart of a replica reports ready again, with a line that gives the reason; so
/// does news of a running engine.
using engine_listener = std::function<void(const load_status&, const loaded_model_ptr&)>;

/// Loads the model, on a thread of its own; throws failure with a sentence.
using model_loader = std::function<loaded_model_ptr(const engine_options&, const progress_sink&)>;

/// load_model.
model_loader loader_with(engine_internals internals = {});

/// `judge_loader`: of the judge's model, if there is one.
engine_actor spawn_engine(caf::actor_system& system, engine_options options, engine_listener on_status,
                          model_loader loader = loader_with(), model_loader judge_loader = loader_with());

} // namespace troupe
