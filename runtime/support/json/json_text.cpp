#include "runtime/support/json/json_text.hpp"

#include "runtime/support/text/hex.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <array>
#include <cmath>

namespace troupe {

namespace {

/// The letter of a short escape, 'u' for control characters without one, or 0.
constexpr auto escape_letters = [] {
  std::array<char, 128> result{};
  for (std::size_t c = 0; c < 0x20; ++c)
    result[c] = 'u';
  result['\b'] = 'b';
  result['\f'] = 'f';
  result['\n'] = 'n';
  result['\r'] = 'r';
  result['\t'] = 't';
  result['"'] = '"';
  result['\\'] = '\\';
  return result;
}();

void append_code_point(std::string& out, char32_t c) {
  if (c < 0x10000)
    return append_unicode_escape(out, c);
  append_unicode_escape(out, 0xD800 + ((c - 0x10000) >> 10));
  append_unicode_escape(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
}

} // namespace

void append_json_escaped(std::string& out, std::string_view text, json_escapes escapes) {
  const bool ascii = escapes == json_escapes::ascii;
  std::size_t copied = 0; // text before this offset is in `out`
  for (std::size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    const char letter = c < 0x80 ? escape_letters[c] : '\0';
    if (letter == '\0' && !(ascii && c >= 0x7F)) {
      ++at;
      continue;
    }
    out += text.substr(copied, at - copied);
    if (letter != '\0' && letter != 'u') {
      out += '\\';
      out += letter;
      ++at;
    } else {
      append_code_point(out, next_char(text, at));
    }
    copied = at;
  }
  out += text.substr(copied);
}

std::string json_text(std::string_view text, json_escapes escapes) {
  std::string result;
  result.reserve(text.size() + 2);
  result += '"';
  append_json_escaped(result, text, escapes);
  return result += '"';
}

std::string json_number(double value) { return std::isfinite(value) ? shortest_digits(value) : "0"; }

std::string json_ids(std::span<const token_id> ids) {
  std::string result = "[";
  for (const auto id : ids) {
    if (result.size() > 1)
      result += ',';
    result += shortest_digits(id);
  }
  return result += ']';
}

} // namespace troupe
