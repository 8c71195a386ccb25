// A model whose files and devices are open and whose weights are not loaded: the facts that memory is planned from.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/loading/guess_part.hpp"
#include "runtime/engine/loading/second_model.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/weight_placement.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// Layers that compute by themselves, and where.
struct opened_stage {
  std::shared_ptr<const troupe::device> device;   // all of it, though other stages may share it
  std::shared_ptr<kernels::backend> backend = {}; // packs weights; of the thread that opened it
  compute_options compute;                        // as they concern the device
  troupe::precision precision = kernels::dtype::f32;
  model_config config;                     // of the layers
  std::size_t weight_budget = all_weights; // bytes of memory for its packed matrices

  memory_estimate memory(const checkpoint& tensors, const step_sizes& sizes) const {
    return estimate_memory(tensors, config, precision, *device, *backend, sizes);
  }
};

struct opened_model {
  std::vector<opened_stage> stages; // at least one, in order
  std::vector<opened_stage> copies; // the whole model once more, for each further replica that has a GPU of its own
  device_capabilities capabilities; // of all together
  model_source source;
  model_info info;                     // all but what depends on the plan of its memory
  std::unique_ptr<guess_part> guesses; // null: no technique guesses
  std::vector<second_model> seconds;   // that techniques run beside it

  const opened_stage& first() const { return stages.front(); }

  /// Samples, and has the models beside this one.
  const opened_stage& last() const { return stages.back(); }

  /// Tokens of a sequence, if memory suffices: what was asked for, but no more than the model has.
  int context(const engine_options& options) const;
};

/// Opens what checked options name. Throws failure for anything wrong with the files or the device, or that the device
/// cannot do.
opened_model open_for(const engine_options& options, const log_sink& log);

} // namespace troupe
