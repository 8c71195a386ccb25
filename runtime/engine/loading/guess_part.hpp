// What a technique opens beside a model to guess for it (technique::guess): planned in the model's memory, and loaded
// behind it. Used by load_model.
#pragma once

#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"

#include <functional>
#include <string>

namespace troupe {

struct opened_stage; // opened_model.hpp

/// What a part is loaded with.
struct part_loading {
  kernels::backend& backend; // of the last stage
  std::function<void(const std::string& name)> begin;
  progress_fn show;
  log_sink log;
};

class guess_part {
public:
  virtual ~guess_part() = default;

  /// What takes memory, for the log; empty: nothing does that was asked for.
  virtual std::string name() const { return {}; }

  /// What computes the guesses; null: the device of the last stage.
  virtual const device* own_device() const { return nullptr; }

  /// Decides types and sizes beside the last stage, and says what memory that takes. A block is one of each KV cache.
  /// `context`: of the model.
  virtual memory_estimate prepare(const engine_options&, const opened_stage&, int /*context*/) { return {}; }

  /// Behind the weights of `model`, to which it adds the values of its technique. `internals`: what tests and benches
  /// have instead of some of it.
  virtual loaded_guesses load(const engine_options& options, const technique_values& internals, loaded_model& model,
                              const part_loading& with) = 0;
};

} // namespace troupe
