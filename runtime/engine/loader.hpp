// From options to a model in memory, ready to run. Plain blocking code: the engine actor calls it on a thread of its
// own.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/execution/draft_model.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/weights.hpp"
#include "runtime/scheduling/scheduler.hpp"
#include "runtime/scheduling/swap_policy.hpp"
#include "runtime/speculation/speculator.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

namespace guides {
class guide_cache; // runtime/guide/guide_cache.hpp
}

/// A model beside the engine's: a draft, which guesses for it, or an amateur, which it is contrasted with.
struct loaded_second {
  std::shared_ptr<const model_weights> weights;
  troupe::precision precision = kernels::dtype::f32;
  step_sizes sizes;
  int vocab = 0;
};

/// What an engine runs. Immutable and shared by its actors: a restarted executor finds its weights here.
struct loaded_model {
  model_info info;
  std::shared_ptr<const model_weights> weights;
  std::shared_ptr<const troupe::device> device;
  troupe::precision precision = kernels::dtype::f32;
  std::int32_t blocks = 0;      // of the KV cache
  std::int32_t host_blocks = 0; // of the host block pool
  swap_rates swap;              // if host_blocks > 0
  scheduler_limits limits;
  bool prefix_cache = true;
  std::chrono::milliseconds request_timeout{0};
  std::shared_ptr<const loaded_second> draft, amateur; // null: none
  speculation_settings speculation;
  std::shared_ptr<guides::guide_cache> guides; // compiles those of requests; the only part that changes

  /// For the device's runners and samplers.
  runner_spec runner() const;
  sampler_spec sampler() const;

  /// Runs the steps of the model and, if there is one, of the amateur. Called by the thread that will use it.
  std::unique_ptr<step_runner> make_runner() const;

  /// For a draft_model. Its KV cache has as many blocks as the model's.
  draft_spec drafting() const;
};

/// The types that `names` stand for on a device. Throws failure(bad_request).
precision precision_of(const compute_options& names, const checkpoint& tensors, const device_capabilities& device);

/// A source's weights, checked by `check_tensors`; `options.packed_cache` may have them or will keep them. Logs a line
/// each for tensors that are not used, for those that are not quantised, and for the cache. The engine and the benches
/// load weights here. Throws as the other load_weights and check_tensors, and failure(bad_request) if the cache's
/// folder is not one or the model is not in files.
std::shared_ptr<const model_weights> load_weights(const model_source& source, const compute_options& options,
                                                  precision precision, kernels::backend& backend,
                                                  const progress_fn& progress, const log_sink& log);

/// Throws failure, with one sentence, for anything wrong with the options, the files or the machine.
std::shared_ptr<const loaded_model> load_model(const engine_options& options, const progress_sink& progress);

} // namespace troupe
