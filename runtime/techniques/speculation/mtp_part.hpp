// A model's layers of multi-token prediction, which guess as a draft model would: opened with the model, planned in its
// memory and loaded behind it. Used by speculation_part.
#pragma once

#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/decoder/mtp_layers.hpp"

#include <memory>

namespace troupe {

struct loaded_mtp {
  std::shared_ptr<const mtp_weights> weights;
  troupe::precision precision = kernels::dtype::f32;
  step_sizes sizes;
};

class mtp_part {
public:
  /// `of` must outlive this, and have such layers.
  explicit mtp_part(const model_source& of) : source_(&of) {}

  /// Decides types and sizes, and says what memory they take. `rows`: of a pass; `context`: of the engine's model.
  memory_estimate prepare(const device& device, const kernels::backend& backend, precision precision, int rows,
                          int sequences, int context);

  std::shared_ptr<const loaded_mtp> load(kernels::backend& backend, const progress_fn& progress);

private:
  const model_source* source_;
  loaded_mtp loaded_;
};

/// The layers that are to guess: null if nothing asks for them. Throws failure(bad_request | unsupported) where they
/// are asked for by name and there are none, or the device or other options forbid them.
std::unique_ptr<mtp_part> open_mtp(const engine_options& options, const model_source& source,
                                   const device_capabilities& capabilities, const std::string& device,
                                   const log_sink& log);

} // namespace troupe
