// The server's view of an engine: a narrow interface that engine_service implements and that tests replace by a script.
// Free of CAF. All members may be called from any thread.
#pragma once

#include "runtime/chat/output/chat_output.hpp"
#include "runtime/engine/engine_stats.hpp"
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

/// The input of a chat template, checked and normalised (chat_messages.hpp).
struct chat_input;

class adapter_library;  // runtime/adapters/adapter_library.hpp
class steering_library; // runtime/steering/steering_library.hpp

/// The loaded model. Immutable. Its functions are slow for long texts and run on worker threads.
struct served_model {
  std::string id;
  int vocab_size = 0;
  int max_context = 0;
  bool schedule_invariant = true;
  std::size_t most_bytes_per_token = 0;                                            // of text; 0: no such bound
  std::optional<std::string> bos_token, eos_token;                                 // as written in texts
  std::shared_ptr<const watermarks::options> watermark;                            // of every answer; null: none
  std::optional<watermarks::hash_key> watermark_key;                               // of requests that bring none
  sampling_params defaults;                                                        // for requests that say nothing
  chat_format format;                                                              // of reasoning and calls
  std::vector<token_id> markers;                                                   // special tokens that it is made of
  std::function<std::vector<token_id>(std::string_view, bool special)> encode;     // empty: no tokenizer
  std::function<std::string(std::span<const token_id>, bool skip_special)> decode; // empty: no tokenizer
  std::function<std::string(token_id)> token_bytes;                                // empty: no tokenizer
  std::function<std::string(const chat_input&)> render;                            // empty: no chat template
  std::string family, weights, device;                                             // "llama", "BF16", "cpu, ..."
  std::size_t weight_bytes = 0, parameters = 0;
  int hidden = 0;                                   // length of an embedding
  embedding_style embeddings;                       // as the checkpoint wants them
  std::shared_ptr<const steering_library> steering; // null: none
  std::shared_ptr<adapter_library> adapters;        // null: none
  bool lora_endpoints = false;                      // clients may change `adapters`
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
  /// Must return at once. Events arrive in order, on any thread, possibly before this returns; the last one is a
  /// done_event or an error. Throws bad_alloc if the request could not be submitted.
  virtual request_handle submit(generation request, event_sink sink) = 0;
  /// May block briefly. Throws failure(unavailable) while there is no model.
  virtual engine_stats stats() const = 0;
};

} // namespace troupe
