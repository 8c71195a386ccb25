// The engine as a library: start it inside a caf::actor_system of yours (or in one of its own), submit requests, receive
// tokens by callback, cancel, stop. No globals: any number of engines may run in one process. Everything here may be called
// from any thread. `api/engine_caf.hpp` adds the same for actors: handles, and tokens as messages.
#pragma once

#include "runtime/chat_template.hpp"
#include "runtime/generation.hpp"
#include "runtime/model_config.hpp"
#include "runtime/tokenizer.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace caf {
class actor_system;
class actor_system_config;
} // namespace caf

namespace troupe {

struct engine_options {
  std::string model;                              // a checkpoint's folder, or synthetic:SHAPE
  std::string dtype = "auto";                     // auto | f32 | bf16
  std::size_t kv_cache_bytes = 0;                 // 0: what max_sequences × max_context can use and the machine can spare
  int max_context = 0;                            // tokens of prompt and answer; 0: the model's limit
  int max_sequences = 64;                         // that run at once
  int max_queue = 1024;                           // requests that wait; one more is refused as overloaded
  int step_tokens = 512;                          // rows of one step
  int threads = 0;                                // of the executor; 0: one per core
  bool prefix_cache = true;
  std::chrono::milliseconds request_timeout = std::chrono::minutes(10);
};

struct load_status {
  enum class stage { loading, ready, failed, stopped } now = stage::loading;
  std::size_t done_bytes = 0, total_bytes = 0;    // of weights
  std::string line;                               // what is being done, for a person
  std::optional<error> why;                       // where failed
};

/// What is known of a model once it is loaded. Immutable.
struct model_info {
  std::string id;                                 // the folder's name
  int vocab_size = 0;
  int max_context = 0;
  std::string dtype;                              // computed in
  std::size_t weight_bytes = 0, kv_cache_bytes = 0;
  std::string device;                             // "cpu, avx512-bf16, 2 threads"
  std::shared_ptr<const troupe::tokenizer> tokenizer;               // null for synthetic models
  std::shared_ptr<const troupe::chat_template> chat;                // null where the checkpoint has none
  generation_defaults defaults;                   // generation_config.json's
};

/// One submitted request. Dropping the handle does not cancel it.
class request_handle {
public:
  /// Ends the request: events stop (one done_event with finish_reason::cancelled follows), its blocks are free within a step.
  void cancel() const;
  /// Flow control for slow readers: a paused request gets no more steps until resumed; it never holds others up.
  void pause() const;
  void resume() const;

  struct impl;
  std::shared_ptr<const impl> self;
};

class engine {
public:
  using event_sink = std::function<void(event)>;               // called in order, never concurrently for one request; must not block
  using progress_sink = std::function<void(const load_status&)>;

  /// Registers the engine's message types; call it on the configuration before you make the actor_system.
  static void configure(caf::actor_system_config& config);

  /// Returns at once; loading goes on in the background and `progress` hears of it (on the loader's thread).
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

  /// Cancels what runs and ends the actors; waits for them. Also done by the destructor of the last copy.
  void stop() const;

  struct impl;

private:
  std::shared_ptr<impl> impl_;
};

} // namespace troupe
