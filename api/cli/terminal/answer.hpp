// One request of `troupe run` or `troupe chat`, from messages to text on stdout. Main thread only.
#pragma once

#include "api/cli/terminal/console.hpp"
#include "api/embed/engine.hpp"

#include <string>
#include <vector>

namespace troupe::cli {

struct message {
  std::string role; // system, user or assistant
  std::string content;
};

/// The prompt of a chat. Throws failure if the model has no chat template or no tokenizer, or if the template refuses
/// the messages.
std::vector<token_id> chat_prompt(const model_info& model, const std::vector<message>& messages);

/// The prompt of a text to continue. Throws failure if the model has no tokenizer.
std::vector<token_id> plain_prompt(const model_info& model, const std::string& text);

struct answer {
  std::vector<std::string> texts; // one per sequence
  done_event done;
  bool interrupted = false;

  /// "12 tokens (0 cached) in, 80 out; ..." with times and rates.
  std::string timings() const;
};

/// Submits a request and prints its text as it arrives; several sequences are printed in order, each under its number.
/// Ctrl-C ends the request, a second one the program. Throws failure if the request fails, and output_failure at once
/// if stdout cannot be written.
answer print_answer(const engine& from, console& terminal, generation request);

} // namespace troupe::cli
