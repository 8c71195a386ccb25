// From options to a model in memory, ready to be executed. Plain code that takes its time: the engine actor has a thread of
// its own call it.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/model.hpp"
#include "runtime/scheduling/scheduler.hpp"
#include "runtime/scheduling/swap_policy.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

/// Immutable, and shared by whoever runs the model: an executor that starts anew finds its weights here.
struct loaded_model {
  model_info info;
  std::shared_ptr<const model_weights> weights;
  std::shared_ptr<const troupe::device> device;
  precision numbers = kernels::dtype::f32;
  std::int32_t blocks = 0;      // of the KV cache
  std::int32_t host_blocks = 0; // that can be parked in host memory
  swap_rates swap;              // where host_blocks > 0
  scheduler_limits limits;
  bool prefix_cache = true;
  std::chrono::milliseconds request_timeout{0};
};

/// What to compute in. fp8 is for GPUs. Throws failure(bad_request).
precision precision_of(const compute_options& names, const checkpoint& tensors, bool on_gpu);

/// A source's weights, checked by `check_tensors`, which `options.packed_cache` may have or will keep; `say` hears of
/// tensors that are not used or not quantised, and of the cache, in a line each. All that runs a model loads it here.
/// Throws as the other load_weights and check_tensors, and failure(bad_request) where that folder is none or the model
/// is not in files.
std::shared_ptr<const model_weights> load_weights(const model_source& source, const compute_options& options,
                                                  precision numbers, kernels::backend& backend,
                                                  const progress_fn& progress, const log_sink& say);

/// Throws failure with one sentence for whatever is wrong with the options, the files or the machine.
std::shared_ptr<const loaded_model> load_model(const engine_options& options, const progress_sink& progress);

} // namespace troupe
