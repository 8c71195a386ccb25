#include "runtime/support/text/integer_text.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace troupe {

std::int64_t parse_integer(std::string_view text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size() || value < low || value > high)
    throw failure(errc::bad_request,
                  "must be an integer from " + std::to_string(low) + " to " + std::to_string(high) + ", found `" +
                    std::string(text) + "`");
  return value;
}

std::vector<std::int64_t> parse_integers(std::string_view text, std::int64_t low, std::int64_t high) {
  constexpr std::string_view between = ", \t\r\n";
  std::vector<std::int64_t> values;
  for (auto at = text.find_first_not_of(between); at != text.npos; at = text.find_first_not_of(between, at)) {
    const auto end = std::min(text.find_first_of(between, at), text.size());
    values.push_back(parse_integer(text.substr(at, end - at), low, high));
    at = end;
  }
  return values;
}

} // namespace troupe
