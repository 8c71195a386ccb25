// The engine as a library: start it inside a caf::actor_system of yours (or in one of its own), submit requests, receive
// tokens by callback, cancel, stop. No globals: any number of engines may run in one process. Everything here may be called
// from any thread. `api/engine_caf.hpp` adds the same for actors: handles, and tokens as messages.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/generation.hpp"
#include "runtime/engine/request_handle.hpp"

#include <functional>
#include <memory>

namespace caf {
class actor_system;
class actor_system_config;
} // namespace caf

namespace troupe {

class engine {
public:
  /// Called in order, never concurrently for one request; must not block. Whatever happens, a done_event or an error comes
  /// last; a sink that throws ends its request and is offered the error.
  using event_sink = troupe::event_sink;

  /// Sets what an engine likes of an actor_system: work sharing instead of stealing, which wakes workers in 10 µs instead
  /// of 100. Optional; call it before you make the actor_system.
  static void configure(caf::actor_system_config& config);

  /// Returns at once; loading goes on in the background and `progress` hears of it (on the loader's thread). `system` must
  /// outlive the engine.
  static engine start(caf::actor_system& system, engine_options options, progress_sink progress = {});

  /// The same with an actor system of its own.
  static engine start(engine_options options, progress_sink progress = {});

  load_status status() const;

  /// Waits until loading has ended. Throws failure where it failed or the engine was stopped.
  std::shared_ptr<const model_info> wait_until_ready() const;

  /// Null until ready.
  std::shared_ptr<const model_info> model() const;

  /// Never fails itself: whatever is wrong (still loading, queue full, a bad parameter) arrives as an `error` event.
  request_handle submit(generation request, event_sink sink) const;

  /// Throws failure(unavailable) while loading or after stop.
  engine_stats stats() const;

  /// Cancels what runs and ends the actors; waits for them. Also done by the destructor of the last copy. Never from a sink.
  void stop() const;

  struct impl;
  const impl& self() const { return *impl_; }

private:
  std::shared_ptr<impl> impl_;
};

} // namespace troupe
