// Turns values that models write as plain text into JSON. The text alone does not tell whether a value is a string.
// Plain values.
#pragma once

#include "runtime/chat/output/json_scanner.hpp"
#include "runtime/chat/output/parameter_kind.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// Gives a value's JSON in pieces, as soon as they are certain: of a string that is as it comes, of others at the end.
class plain_value {
public:
  explicit plain_value(parameter_kind kind = {}) : kind_(kind) {}

  void take(char c);
  /// The value ends.
  void finish();
  /// The answer ends within the value: what there is of it, without its end.
  void cut();

  /// What is certain since the last time.
  std::string release() { return std::exchange(out_, {}); }

private:
  enum class as : std::uint8_t { undecided, string, json };

  void look(char c);
  void become_string();

  parameter_kind kind_;
  as as_ = as::undecided;
  json_scanner scanner_;   // of `text_`, while it may be JSON or a string
  bool complete_ = false;  // `text_` is a JSON value
  bool no_json_ = false;   // `text_` is none
  std::string text_, out_; // text_: undecided
};

/// JSON of a text that is whole.
std::string plain_value_json(std::string_view text, parameter_kind kind);

} // namespace troupe
