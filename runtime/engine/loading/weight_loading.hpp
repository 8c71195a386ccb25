// Loads the weights of a source, with what users are told about them, and decides how much of them stays in memory. For
// the engine and the benches.
#pragma once

#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/execution/compute_options.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/decoder/weight_placement.hpp"
#include "runtime/model/decoder/weights.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// A source's weights, or those of a part of it, checked by `check_tensors`; `options.packed_cache` may have them or
/// will keep them. `budget`: bytes of memory for packed matrices; what is beyond stays in the packed cache's file. Logs
/// a line each for tensors that are not used, for those that are not quantised, for the cache, and for what is read
/// from disk. Throws as the other load_weights and check_tensors, and failure(bad_request) if the cache's folder is not
/// one or the model is not in files.
std::shared_ptr<const model_weights> load_weights(const model_source& source, const compute_options& options,
                                                  precision precision, kernels::backend& backend,
                                                  const progress_fn& progress, const log_sink& log,
                                                  std::optional<layer_span> part = {},
                                                  std::size_t budget = all_weights);

/// Why weights cannot be mapped from a file, if the options allow it; empty if they can.
std::string not_mappable(const model_source& source, const compute_options& options, const kernels::backend& backend);

/// How the packed matrices of a model, or of the part that `config` describes, are placed in `budget` bytes.
weight_placement place_packed(const model_source& source, const model_config& config, precision precision,
                              const kernels::backend& backend, std::size_t budget);

/// The budget of the packed matrices of a model that is loaded without an engine, beside `beside` bytes of other use.
/// Throws failure(out_of_memory) like require_memory if it does not fit and cannot be mapped.
std::size_t budget_beside(const model_source& source, const compute_options& options, precision precision,
                          const kernels::backend& backend, const memory_estimate& need, std::size_t beside,
                          std::size_t available);

} // namespace troupe
