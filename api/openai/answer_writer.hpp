// An answer_writer turns the events of one request's generations into its answer, in the format of one API: OpenAI's
// completions, chats and responses, embeddings, Ollama's. Plain data in, text out. It belongs to one answer and is used
// on its connection's strand.
#pragma once

#include "runtime/chat/output/output_filter.hpp"
#include "runtime/engine/generation.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class answer_writer {
public:
  virtual ~answer_writer() = default;

  /// Ends choices where the filter, or a copy of it, says so. Before the first event, if at all.
  virtual void withhold(const output_filter& filter) = 0;
  /// Whether the filter ended generation `prompt`: nothing that it still says is told, so it may be cancelled.
  virtual bool is_filtered(std::size_t) const { return false; }

  /// The answer's own id; empty: it has none.
  virtual std::string_view id() const { return {}; }

  /// The content type of streams.
  virtual std::string_view stream_type() const { return "text/event-stream"; }

  /// Takes an event of generation `prompt`. Returns what a stream says then; nothing if the answer is not a stream, or
  /// the event has to wait.
  virtual std::string take(std::size_t prompt, const token_event& e) = 0;
  virtual std::string take(std::size_t prompt, const done_event& e) = 0;

  /// How a stream ends, once all generations are done.
  virtual std::string end() = 0;
  /// How a stream ends that was begun and failed.
  virtual std::string fail(const error& why) = 0;

  /// The whole answer, once all generations are done; not for streams.
  virtual std::string body() = 0;
};

/// A parsed request: what to generate, and who writes the answer.
struct generation_job {
  std::vector<generation> prompts; // one submission each; none: the answer is known already
  bool stream = false;
  std::unique_ptr<answer_writer> writer;
  std::vector<std::string> notes = {}; // what of the request is left out, and why: sentences for the log, few
  /// How long the model stays loaded once nobody uses it; below 0: for good; none: as usual.
  std::optional<std::chrono::milliseconds> keep_alive = {};
};

} // namespace troupe
