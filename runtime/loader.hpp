// From options to a model in memory, ready to be executed. Plain code that takes its time: the engine actor has a thread of
// its own call it.
#pragma once

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine_options.hpp"
#include "runtime/model.hpp"
#include "runtime/scheduler.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

/// Immutable, and shared by whoever runs the model: an executor that starts anew finds its weights here.
struct loaded_model {
  model_info info;
  std::shared_ptr<const model_weights> weights;
  kernels::cpu_options device;
  precision numbers = kernels::dtype::f32;
  std::int32_t blocks = 0;                        // of the KV cache
  scheduler_limits limits;
  bool prefix_cache = true;
  std::chrono::milliseconds request_timeout{0};
};

/// What a device's name ("auto", "cpu", "cpu:avx2") means here. Throws failure(bad_request) naming those there are.
kernels::cpu_options cpu_of(const std::string& device, int threads);

/// `dtype`: "f32", "bf16", or "auto" for what suits the weights; `quantize`: "none", "int8" or "int4"; `kv_dtype`: "f32",
/// "bf16", "int8", or "auto" for what suits the compute type.
struct precision_names {
  std::string dtype, quantize, kv_dtype;
};

/// What to compute in. Throws failure(bad_request).
precision precision_of(const precision_names& names, const checkpoint& tensors);

/// Throws failure with one sentence for whatever is wrong with the options, the files or the machine.
std::shared_ptr<const loaded_model> load_model(const engine_options& options, const progress_sink& progress);

} // namespace troupe
