// The engine as a library: start it, in a caf::actor_system of the program or in one of its own, submit requests,
// receive tokens by callback, cancel, stop. No globals: any number of engines may run in one process. All members may
// be called from any thread. engine_caf.hpp adds the same for actors: handles, and tokens as messages.
#pragma once

#include "api/embed/conversation.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/engine_snapshot.hpp"
#include "runtime/engine/engine_stats.hpp"
#include "runtime/engine/generation.hpp"
#include "runtime/engine/request_handle.hpp"
#include "runtime/scheduling/step_record.hpp"

#include <functional>
#include <memory>
#include <stop_token>
#include <string_view>

namespace caf {
class actor_system;
class actor_system_config;
} // namespace caf

namespace troupe {

struct engine_internals; // runtime/engine/loading/engine_internals.hpp

class engine {
public:
  /// The last event is always a done_event or an error.
  using event_sink = troupe::event_sink;

  /// Tunes the configuration of an actor_system for engines: work sharing instead of stealing, which wakes workers in
  /// 10 µs instead of 100. Changes nothing else. Optional; call it before making the actor_system.
  static void configure(caf::actor_system_config& config);

  /// Returns at once; the model loads in the background and `progress` is called on the loader's thread. `system` must
  /// outlive the engine, whose actors share its workers: actors of the program that block must be detached.
  static engine start(caf::actor_system& system, engine_options options, progress_sink progress = {});

  /// Starts an engine with an actor system and workers of its own.
  static engine start(engine_options options, progress_sink progress = {});

  load_status status() const;

  /// Waits until loading has ended. Throws failure if it failed or the engine was stopped.
  std::shared_ptr<const model_info> wait_until_ready() const;

  /// Null until ready.
  std::shared_ptr<const model_info> model() const;

  /// Answers a question, and waits for the answer. `on_text` gets its content as it comes, on the calling thread. Once
  /// `stop` is requested, the answer ends where it is: its `finish` is cancelled; once question::timeout is over, it
  /// is timeout. Throws failure if the model cannot be loaded, the request is refused, or that time is over before the
  /// first token. Not to be called from a sink.
  full_answer generate(const question& asked, const std::function<void(std::string_view)>& on_text = {},
                       std::stop_token stop = {}) const;

  /// Sinks run on the engine's threads: one that blocks holds up other requests, and after 100 ms `progress` is told of
  /// it (load_status::news). Never throws: every refusal (still loading, queue full, a bad parameter) arrives as an
  /// `error` event.
  request_handle submit(generation request, event_sink sink) const;

  /// Throws failure(unavailable) while loading or after stop.
  engine_stats stats() const;

  /// Calls `sink` with a record of each step, on the engine's threads, until the result is dropped; it must return at
  /// once. Nothing is recorded while nobody watches. The result must not outlive the actor system.
  std::shared_ptr<const void> watch(step_sink sink) const;

  /// What the engine is doing now, for those who watch it; waits for the answer. Throws failure(unavailable) after
  /// stop.
  engine_snapshot look() const;

  /// Cancels all requests, ends the actors and waits for them. The destructor of the last copy does the same. Within a
  /// sink or a progress function both return at once, and the actors end in the background.
  void stop() const;

  struct impl;
  impl& self() const { return *impl_; }

private:
  friend engine start_with(engine_internals internals, engine_options options, progress_sink progress);

  std::shared_ptr<impl> impl_;
};

} // namespace troupe
