// Splits a template into tokens by jinja2's rules, with trim_blocks and lstrip_blocks on, as chat templates expect.
// Used only by the parser.
#pragma once

#include "runtime/support/error.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe::jinja {

/// Both count from 1; columns are bytes.
struct position {
  int line = 1;
  int column = 1;
};

/// "template line 3, column 7".
std::string to_string(position at);

/// Throws failure: "template line 3, column 7: what".
[[noreturn]] void refuse(position at, const std::string& what, errc code = errc::bad_file);

struct token {
  enum class type { data, variable_begin, variable_end, block_begin, block_end, name, string, integer, real, op, end };
  type is = type::end;
  std::string text; // strings without quotes and escapes, numbers without underscores
  position at;
};

/// The last token is `end`. Throws failure(bad_file).
std::vector<token> tokenize(std::string_view source);

} // namespace troupe::jinja
