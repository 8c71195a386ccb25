// The text of one answer, taken apart for APIs that tell content, reasoning and calls of tools from each other. Used on
// its connection's strand.
#pragma once

#include "api/openai/chat_message.hpp"
#include "api/openai/openai_request.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

class answer_text {
public:
  /// For the answer to the only prompt of `request`.
  explicit answer_text(const generation_request& request) {
    if (request.output)
      parser_.emplace(request.output);
  }

  output_deltas feed(std::string_view text) {
    if (parser_)
      return parser_->feed(text, false);
    if (text.empty())
      return {};
    return {{output_delta::kind::content, std::string(text), 0, {}}};
  }
  /// What was held back. Nothing follows.
  output_deltas finish() { return parser_ ? parser_->feed({}, true) : output_deltas(); }
  /// Whether the text that came last is reasoning's.
  bool reasons() const { return parser_ && parser_->reasons(); }

private:
  std::optional<choice_parser> parser_; // none: all is content
};

} // namespace troupe
