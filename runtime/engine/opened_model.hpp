// A model whose files and device are open and whose weights are not loaded: the facts that memory is planned from.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/second_model.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"

#include <memory>

namespace troupe {

struct opened_model {
  std::shared_ptr<const troupe::device> device;
  std::unique_ptr<kernels::backend> backend; // packs weights; of the thread that opened it
  model_source source;
  troupe::precision precision = kernels::dtype::f32;
  model_info info;                              // all but what depends on the plan of its memory
  std::unique_ptr<second_model> draft, amateur; // null: none

  /// Tokens of a sequence, if memory suffices: what was asked for, but no more than the model has.
  int context(const engine_options& options) const;
};

/// Opens what checked options name. Throws failure for anything wrong with the files or the device, or that the device
/// cannot do.
opened_model open_for(const engine_options& options, const log_sink& log);

} // namespace troupe
