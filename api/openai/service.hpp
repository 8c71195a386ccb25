// What the server needs of whatever generates: a narrow face that the engine satisfies (engine_service.hpp) and that
// tests replace by a script. All of it may be called from any thread.
#pragma once

#include "runtime/engine/generation.hpp"
#include "runtime/engine/request_handle.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What a chat template is given, checked and normalised (chat_messages.hpp).
struct chat_input;

/// The loaded model. Immutable; its functions are slow for long texts, so they run on worker threads.
struct served_model {
  std::string id;
  int vocab_size = 0;
  int max_context = 0;
  bool schedule_invariant = true;
  std::size_t most_bytes_per_token = 0;                                            // of a text; 0: no such bound
  sampling_params defaults;                                                        // where a request says nothing
  std::function<std::vector<token_id>(std::string_view, bool special)> encode;     // empty: no tokenizer
  std::function<std::string(std::span<const token_id>, bool skip_special)> decode; // empty: no tokenizer
  std::function<std::string(token_id)> token_bytes;                                // empty: no tokenizer
  std::function<std::string(const chat_input&)> render;                            // empty: no chat template
};

struct service_status {
  bool ready = false;
  std::string state; // loading, ready, failed or stopped
  std::size_t done_bytes = 0, total_bytes = 0;
  std::string line; // for a person
};

class service {
public:
  using event_sink = troupe::event_sink;

  virtual ~service() = default;
  /// Must return at once.
  virtual service_status status() const = 0;
  /// Null until ready. Must return at once.
  virtual std::shared_ptr<const served_model> model() const = 0;
  /// Must return at once. Events arrive in order, on any thread, possibly before this returns; one done_event or error
  /// ends them.
  virtual request_handle submit(generation request, event_sink sink) = 0;
  /// May block for a moment. Throws failure(unavailable) where there is nothing to count yet.
  virtual engine_stats stats() const = 0;
};

} // namespace troupe
