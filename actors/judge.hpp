// The judge actor: values the answers of searches by a model of its own (answer_judge, runtime/techniques). It owns a second
// engine, in which all texts of all orders are computed together, and is that engine's client. Detached: it renders and
// encodes texts, however long. It belongs to the engine whose answers it judges, not to one of its replicas; what it is
// asked after its end has failed. It ends when its engine has failed for good, with the reason, and the engine that it
// belongs to may put another in its place (kept_judge.hpp).
#pragma once

#include "actors/engine.hpp"
#include "actors/messages.hpp"
#include "runtime/engine/engine_options.hpp"

#include <functional>

namespace troupe {

/// Loads the model of judge_of(options.techniques) for `owner`, which it tells whether it can judge. `progress` is called on the loader's
/// thread.
judge_actor spawn_judge(const engine_actor& owner, const engine_options& options,
                        std::function<void(const load_status&)> progress, model_loader loader = loader_with());

} // namespace troupe
