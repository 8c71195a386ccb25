// From options to a model in memory, ready to run: validates options, opens device and files, plans memory, loads
// weights, and puts together what the actors get. Plain blocking code: the engine actor calls it on a thread of its
// own.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/loading/engine_internals.hpp"
#include "runtime/engine/loading/loaded_model.hpp"

#include <memory>

namespace troupe {

/// Throws failure, with one sentence, for anything wrong with the options, the files or the machine.
std::shared_ptr<const loaded_model> load_model(const engine_options& options, const progress_sink& progress,
                                               const engine_internals& internals = {});

} // namespace troupe
