// One of a call's named arguments, as LFM2 (Python's literals) and Gemma 4 write them, read byte by byte. Models are
// careless with quotes: what looks like the end of a value is one only in front of another argument or the call's end.
// Plain values.
#pragma once

#include "runtime/chat/output/parameter_kind.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

struct argument_ends {
  char close, assign;     // of the call, of keys
  std::string_view quote; // around strings, beside Python's quotes; may be empty
};

/// Without the quotes that may stand around it.
std::string bare_key(std::string_view key, std::string_view quote);

class argument_value {
public:
  argument_value() = default;
  argument_value(argument_ends ends, parameter_kind kind) : ends_(ends), kind_(kind) {}

  /// True with the byte that shows that the value has ended: `rest()` is to be read again.
  bool take(char c);
  /// The answer ends: the value, or what there is of it.
  void finish();

  /// JSON that is certain since the last time: of a string between marks as it comes, of others in the end.
  std::string release() { return std::exchange(out_, {}); }
  /// From the comma or the bracket on.
  std::string rest() const { return rest_; }
  bool too_long() const;

private:
  enum class as : std::uint8_t { start, marked, quoted, container, bare, done };
  enum class fit : std::uint8_t { none, more, whole };

  bool start();
  bool find_end();
  bool find_mark();
  bool find_quote();
  bool find_bracket();
  bool find_comma();
  void reject_end();
  void end();
  fit ends_with(std::string_view rest) const;
  fit behind_call(std::string_view next) const;
  bool is_mark_at(std::size_t at) const {
    return !ends_.quote.empty() && text_.compare(at, ends_.quote.size(), ends_.quote) == 0;
  }
  bool may_be_mark_at(std::size_t at) const;

  argument_ends ends_{};
  parameter_kind kind_;
  as as_ = as::start;
  std::string text_, out_, rest_;
  std::size_t scan_ = 0;             // where to look on
  std::size_t end_ = 0, behind_ = 0; // of what may be the value, and of its quote; behind_ = 0: there is no such end
  std::size_t delimiter_ = 0;        // quotes around a string
  int depth_ = 0;                    // in a container
  char string_ = 0;                  // in a string within one: its quote
  bool lacks_mark_ = false;          // the end is a mark without a beginning
};

} // namespace troupe
