// The engine as a library: start it, in a caf::actor_system of the program or in one of its own, submit requests,
// receive tokens by callback, cancel, stop. No globals: any number of engines may run in one process. All members may
// be called from any thread. engine_caf.hpp adds the same for actors: handles, and tokens as messages.
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
  /// The last event is always a done_event or an error.
  using event_sink = troupe::event_sink;

  /// Tunes the configuration of an actor_system for engines: work sharing instead of stealing, which wakes workers in
  /// 10 µs instead of 100. Optional; call it before making the actor_system.
  static void configure(caf::actor_system_config& config);

  /// Returns at once; the model loads in the background and `progress` is called on the loader's thread. `system` must
  /// outlive the engine.
  static engine start(caf::actor_system& system, engine_options options, progress_sink progress = {});

  /// The same with an actor system of its own.
  static engine start(engine_options options, progress_sink progress = {});

  load_status status() const;

  /// Waits until loading has ended. Throws failure if it failed or the engine was stopped.
  std::shared_ptr<const model_info> wait_until_ready() const;

  /// Null until ready.
  std::shared_ptr<const model_info> model() const;

  /// Never throws: every refusal (still loading, queue full, a bad parameter) arrives as an `error` event.
  request_handle submit(generation request, event_sink sink) const;

  /// Throws failure(unavailable) while loading or after stop.
  engine_stats stats() const;

  /// Cancels all requests, ends the actors and waits for them. The destructor of the last copy does the same. Must not
  /// be called from a sink.
  void stop() const;

  struct impl;
  impl& self() const { return *impl_; }

private:
  std::shared_ptr<impl> impl_;
};

} // namespace troupe
