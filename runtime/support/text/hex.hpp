// Hexadecimal digits, written and read. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::string_view hex_digits = "0123456789abcdef";

/// Two digits.
inline void append_hex(std::string& to, unsigned char byte) { (to += hex_digits[byte >> 4]) += hex_digits[byte & 15]; }

/// "\\u00e9", the escape of JSON and others for a unit of UTF-16.
inline void append_unicode_escape(std::string& to, unsigned unit) {
  to += "\\u";
  append_hex(to, static_cast<unsigned char>(unit >> 8 & 0xFF));
  append_hex(to, static_cast<unsigned char>(unit & 0xFF));
}

/// The value of a digit in either case; nothing if it is none.
constexpr std::optional<unsigned> hex_value(char c) {
  if (c >= '0' && c <= '9')
    return static_cast<unsigned>(c - '0');
  const auto lower = static_cast<char>(c | 0x20);
  if (lower >= 'a' && lower <= 'f')
    return static_cast<unsigned>(lower - 'a' + 10);
  return std::nullopt;
}

} // namespace troupe
