// Starts an engine with internals of its own, for tests and benches. Not for programs that embed one.
#pragma once

#include "api/embed/engine.hpp"
#include "runtime/engine/loading/engine_internals.hpp"

namespace troupe {

/// Starts an engine with an actor system of its own, as engine::start does.
engine start_with(engine_internals internals, engine_options options, progress_sink progress = {});

} // namespace troupe
