// Turns a text or a conversation into a generation, and takes the text that answers it apart into content, reasoning
// and calls. For programs that embed the engine; any thread.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/generation.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct chat_output; // runtime/chat/output/chat_output.hpp

/// A call of a tool, by the model.
struct tool_call {
  std::string name;
  std::string arguments; // a JSON object; cut off if the answer was
  std::string id = {};
};

/// One message of a conversation.
struct chat_turn {
  std::string role; // "system", "user", "assistant" or "tool"
  std::string content;
  std::vector<tool_call> calls = {}; // of an assistant's message
  std::string call_id = {};          // of a tool's message: the call that it answers
};

/// A function that the model may call.
struct tool_offer {
  std::string name;
  std::string description = {};
  std::string parameters = {}; // a JSON Schema; empty: any object
};

struct question {
  std::string text = {};                        // continued as it is, if there are no messages
  std::vector<chat_turn> messages = {};         // rendered by the model's chat template
  std::vector<tool_offer> tools = {};           // for a conversation
  std::optional<sampling_params> sampling = {}; // unset: as the model says, else as `troupe run`
  int max_tokens = 0;                           // of the answer; 0: as many as the context holds
  std::optional<std::uint64_t> seed = {};       // unset: that of `sampling`, or a random one if it is 0
  std::chrono::milliseconds timeout{0};         // for the whole answer; 0: as long as the engine allows
};

struct full_answer {
  std::string text; // without reasoning and calls
  std::string reasoning;
  std::vector<tool_call> calls;
  finish_reason finish = finish_reason::stop;
  done_event done; // tokens and times
};

/// A question ready to be submitted, and how the answers to it are read.
struct prepared_question {
  generation request;
  std::shared_ptr<const chat_output> output; // null: the text is the content
};

/// Throws failure(unsupported | bad_request) if the model has no tokenizer, or for a conversation no chat template, or
/// if the template, a tool's schema or a number is refused.
prepared_question prepare(const model_info& model, const question& asked);

/// Puts an answer together from the events of its first sequence. Not thread-safe.
class answer_reader {
public:
  explicit answer_reader(const prepared_question& of);
  ~answer_reader();
  answer_reader(answer_reader&&) noexcept;
  answer_reader& operator=(answer_reader&&) noexcept;

  /// The content that this event adds.
  std::string add(const token_event& e);
  /// The whole answer.
  full_answer finish(const done_event& done) &&;

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe
