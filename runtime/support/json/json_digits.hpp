// Keeps numbers with more digits than a double has. simdjson keeps the nearest double only. So json::document stores
// the digits of such numbers behind its tape, where any of its values finds them. Pure functions.
#pragma once

#include "runtime/support/json/json.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::json {

/// A number as it was written, if it is an integer beyond 64 bits or its double has other digits; nothing for any other
/// value, and for values of files.
std::optional<std::string_view> digits(value v);

/// `v` without white space, as simdjson::minify, but with all digits of its numbers.
std::string minified(value v);

/// Whether this JSON number has neither fraction nor exponent and does not fit into 64 bits.
bool is_wide_integer(std::string_view number);

/// A number without an exponent, and without zeros that say nothing: 1.50e3 becomes 1500.
std::string without_exponent(std::string_view number);

/// The numbers of a JSON text, in order.
class number_tokens {
public:
  explicit number_tokens(std::string_view text) : text_(text) {}
  /// Empty at the end.
  std::string_view next();

private:
  std::string_view text_;
  std::size_t at_ = 0;
};

/// Stores the digits that the doubles of `doc` lack. `text` has the numbers of the text that it was parsed from.
void keep_digits(simdjson::dom::document& doc, std::string_view text);

} // namespace troupe::json
