// The message of a chat's answer as OpenAI's JSON: put together from deltas, or as deltas of a stream. Reasoning is
// `reasoning_content`, as DeepSeek and most clients name it.
#pragma once

#include "runtime/chat/output/chat_output_parser.hpp"
#include "runtime/chat/output/output_filter.hpp"
#include "runtime/support/json/json_object.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class chat_message {
public:
  void add(const output_delta& delta);

  const std::string& content() const { return content_; }
  const std::string& reasoning() const { return reasoning_; }
  /// {"role":"assistant","content":…}; content is null where there are calls and nothing else.
  std::string json() const;

private:
  struct call {
    std::string id, name, arguments;
  };
  std::string content_, reasoning_;
  std::vector<call> calls_;
};

/// Adds the member of a stream's `delta`: `content`, `reasoning_content` or `tool_calls`.
void add_delta(json_object& to, const output_delta& delta);
/// {"index":…,"id":…,"type":"function","function":{…}} of a call's delta.
std::string call_delta(const output_delta& delta);

/// Takes apart one choice's text, and ends it where a client would read a banned one.
class choice_parser {
public:
  /// Null: all is content.
  explicit choice_parser(const std::shared_ptr<const chat_output>& what, output_filter filter = {});

  /// The deltas of this text; with `last`, also of what was held back. Nothing after that, and behind a banned text.
  output_deltas feed(std::string_view text, bool last);
  std::size_t calls() const { return parser_ ? parser_->calls() : 0; }
  /// Whether the text that came last is reasoning's.
  bool reasons() const { return parser_ && parser_->reasons(); }
  /// Whether it was ended ahead of a banned text.
  bool filtered() const { return filter_.closed(); }

private:
  output_deltas deltas_of(std::string_view text, bool last);

  std::optional<chat_output_parser> parser_;
  output_filter filter_;
  bool ended_ = false;
};

} // namespace troupe
