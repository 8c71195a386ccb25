// Takes the text of one answer apart as it comes: reasoning, content, calls of tools. What it yields does not depend on
// how the text was cut. Text that only looks like a call comes out as content, byte for byte. Single-threaded; used by
// the writer of the answer.
//
// It holds back what may turn out to be a marker, white space that may border on one, and a call whose name is not
// complete: at most `most_held` bytes. A call is certain once its function is known to be one of the tools' and its
// arguments begin. From then on arguments are yielded as they come, even if the answer ends within them.
#pragma once

#include "runtime/chat/output/chat_output.hpp"
#include "runtime/chat/output/output_delta.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace troupe {

class chat_output_parser {
public:
  /// `entropy`: at least 24 random letters and digits, from which the ids of calls are made.
  chat_output_parser(std::shared_ptr<const chat_output> what, std::string entropy);
  chat_output_parser(chat_output_parser&&) noexcept;
  chat_output_parser& operator=(chat_output_parser&&) noexcept;
  ~chat_output_parser();

  static constexpr std::size_t most_held = 64 << 10; // bytes

  /// What is certain after this text. Whole characters in, whole characters out.
  output_deltas feed(std::string_view text);
  /// What was held back. Nothing may be fed afterwards.
  output_deltas finish();

  /// Calls that have begun. An answer with calls that ends by itself has the finish reason "tool_calls".
  std::size_t calls() const;
  /// Whether what was fed last belongs to the reasoning, told or not.
  bool reasons() const;

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe
