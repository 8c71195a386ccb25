// The text of one answer, taken apart for APIs that tell content, reasoning and calls of tools from each other. Used on
// its connection's strand.
#pragma once

#include "api/openai/chat_message.hpp"
#include "api/openai/openai_request.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace troupe {

class answer_text {
public:
  /// Takes apart the answer to the only prompt of `request`.
  explicit answer_text(const generation_request& request) : answer_text(request.output) {}
  /// Null: all is content.
  explicit answer_text(std::shared_ptr<const chat_output> what) : what_(std::move(what)), parser_(what_) {}

  /// Before any text.
  void withhold(const output_filter& filter) { parser_ = choice_parser(what_, filter); }

  output_deltas feed(const token_event& e) {
    if (!filtered())
      tokens_ += static_cast<std::uint32_t>(e.token_ids.size());
    return parser_.feed(e.text, false);
  }
  /// What was held back. Nothing follows.
  output_deltas finish() { return parser_.feed({}, true); }
  /// Whether the text that came last is reasoning's.
  bool reasons() const { return parser_.reasons(); }

  /// Whether it was ended ahead of a banned text. No token of the last event is told then.
  bool filtered() const { return parser_.filtered(); }
  /// The end as its client gets it: what was generated behind a banned text depends on when it was stopped.
  done_event as_told(done_event done) const { return as_told(std::move(done), filtered()); }
  done_event as_told(done_event done, bool filtered) const {
    if (filtered)
      done.completion_tokens = tokens_;
    return done;
  }

private:
  std::shared_ptr<const chat_output> what_;
  choice_parser parser_;
  std::uint32_t tokens_ = 0;
};

} // namespace troupe
