// Loads the weights of a source, with what users are told about them. For the engine and the benches.
#pragma once

#include "runtime/execution/compute_options.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/weights.hpp"

#include <memory>
#include <optional>

namespace troupe {

/// A source's weights, or those of a part of it, checked by `check_tensors`; `options.packed_cache` may have them or will keep them. Logs a line
/// each for tensors that are not used, for those that are not quantised, and for the cache. Throws as the other
/// load_weights and check_tensors, and failure(bad_request) if the cache's folder is not one or the model is not in
/// files.
std::shared_ptr<const model_weights> load_weights(const model_source& source, const compute_options& options,
                                                  precision precision, kernels::backend& backend,
                                                  const progress_fn& progress, const log_sink& log,
                                                  std::optional<layer_span> part = {});

} // namespace troupe
