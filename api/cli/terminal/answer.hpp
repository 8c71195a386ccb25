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

/// The sentence about a model without one, which says what works instead.
std::string no_chat_template(const std::string& model, bool generates);

/// The prompt of a chat. Throws failure if the model has no chat template or no tokenizer, or if the template refuses
/// the messages.
std::vector<token_id> chat_prompt(const model_info& model, const std::vector<message>& messages);

/// Gives a request whose answers a judge values the conversation that its prompt was made of; none: it is a text.
void let_judge(const model_info& model, const std::vector<message>& messages, generation& request);

/// The prompt of a text to continue. Throws failure if the model has no tokenizer.
std::vector<token_id> plain_prompt(const model_info& model, const std::string& text);

/// Has a request's budget of reasoning kept, if it has one. Its prompt and parameters are set; `goes_on`: the prompt ends with the beginning of the answer. Throws failure if the model is not known to
/// write any reasoning.
void keep_thinking_budget(const model_info& model, generation& request, bool goes_on = false);

struct answer {
  std::vector<std::string> texts; // one per sequence
  std::vector<token_id> ids;      // of the first one's text
  done_event done;
  bool interrupted = false;

  /// "12 tokens in (0 cached), 80 out; ..." with times and rates.
  std::string timings() const;
};

/// "(stopped at --max-tokens 512)": which answers were cut, and by what, and `what` to do. Empty if none was.
std::string cut_note(const done_event& done, int max_tokens, int max_context, const std::string& what = {});

struct answer_style {
  bool wrap = false;     // between words, at the width of the terminal that stdout is
  int interrupts = 2;    // so many Ctrl-C end the program; the first ends the answer
  std::string note = {}; // for stderr, ahead of the text, once the request has been accepted
};

/// Submits a request and prints its text as it arrives; several sequences are printed in order, each under its number.
/// Throws failure if the request fails, and output_failure at once if stdout cannot be written.
answer print_answer(const engine& from, console& terminal, generation request, const answer_style& style = {});

} // namespace troupe::cli
