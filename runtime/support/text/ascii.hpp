// Letters and digits of ASCII. Unlike those of <cctype>, these functions ignore the locale, in which `i` may not be the
// lower case of `I` (Turkish), or bytes above 127 may be letters.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace troupe {

constexpr bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_ascii_hex(char c) { return is_ascii_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

constexpr char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

inline std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) { return ascii_lower(c); });
  return lower;
}

} // namespace troupe
