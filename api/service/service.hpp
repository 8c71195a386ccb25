// The interface between servers and whatever serves models: serving/catalogue implements it with engines, tests with a
// script. Free of CAF. All members may be called from any thread.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/engine/engine_snapshot.hpp"
#include "runtime/engine/engine_stats.hpp"
#include "runtime/engine/generation.hpp"
#include "runtime/engine/request_handle.hpp"
#include "runtime/scheduling/step_record.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct service_status {
  bool ready = false;
  std::string state; // loading, ready, failed or stopped
  std::size_t done_bytes = 0, total_bytes = 0;
  std::string line;          // for a person
  std::string degraded = {}; // if ready: why not all of it serves; mostly empty
};

class service {
public:
  using event_sink = troupe::event_sink;

  virtual ~service() = default;
  /// Must return at once.
  virtual service_status status() const = 0;
  /// Those that are loaded, first the one of requests that name none. Must return at once.
  virtual std::vector<std::shared_ptr<const served_model>> models() const = 0;
  /// To the engine of generation::model; empty: the first. Must return at once. Events arrive in order, on any thread,
  /// possibly before this returns; the last one is a done_event or an error. Throws bad_alloc if the request could not
  /// be submitted.
  virtual request_handle submit(generation request, event_sink sink) = 0;
  /// May block briefly. Throws failure(unavailable) while there is no model.
  virtual engine_stats stats() const = 0;

  /// Calls `sink` with a record of each step, on any thread, until the result is dropped; it must return at once. Null:
  /// there are no records.
  virtual std::shared_ptr<const void> watch(step_sink) const { return nullptr; }
  /// What the engine is doing now, for those who watch it. May block briefly. Throws failure(unavailable).
  virtual engine_snapshot look() const { return {}; }

  /// The model by this name, which may be a variant's or end in `:latest`, as Ollama's clients have it; empty: the
  /// first. Null: none that is loaded.
  std::shared_ptr<const served_model> find(std::string_view name) const;
};

} // namespace troupe
