#include "runtime/support/json/json_fault.hpp"

#include "runtime/support/text/hex.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace troupe::json {

namespace {

constexpr std::string_view digits = "0123456789", space = " \t\r\n";

/// Reads a text from its start. Each function says whether the text can go on; else `at` is where it cannot.
struct scanner {
  std::string_view text;
  std::size_t at = 0;
  bool half_a_pair = false;

  bool next_is(char c) const { return at < text.size() && text[at] == c; }
  bool next_is_in(std::string_view set) const { return at < text.size() && set.find(text[at]) != set.npos; }
  bool take(char c) { return next_is(c) && ++at; }
  void skip_space() { at = std::min(text.find_first_not_of(space, at), text.size()); }

  bool word(std::string_view name) {
    for (const char c : name)
      if (!take(c))
        return false;
    return true;
  }

  bool some_digits() {
    const auto begin = at;
    at = std::min(text.find_first_not_of(digits, at), text.size());
    return at > begin;
  }

  bool number() {
    take('-');
    if (!take('0') && !some_digits())
      return false;
    if (take('.') && !some_digits())
      return false;
    if (take('e') || take('E')) {
      if (!take('+'))
        take('-');
      return some_digits();
    }
    return true;
  }

  /// Four digits; `at` is left at the last one.
  std::optional<unsigned> code_unit() {
    unsigned value = 0;
    for (int i = 0; i < 4; ++i) {
      ++at;
      const auto digit = at < text.size() ? hex_value(text[at]) : std::nullopt;
      if (!digit)
        return std::nullopt;
      value = value * 16 + static_cast<unsigned>(*digit);
    }
    return value;
  }

  /// `at` is the u of an escape, and left at the last digit: of the second one, where a character takes two.
  bool code_point() {
    const auto begin = at - 1;
    const auto first = code_unit();
    if (!first)
      return false;
    constexpr auto is_in = [](unsigned unit, unsigned from) { return unit >= from && unit < from + 0x400; };
    if (is_in(*first, 0xD800) && text.substr(at + 1).starts_with("\\u")) {
      at += 2;
      const auto second = code_unit();
      if (!second)
        return false;
      half_a_pair = !is_in(*second, 0xDC00);
    } else {
      half_a_pair = is_in(*first, 0xD800) || is_in(*first, 0xDC00);
    }
    if (half_a_pair)
      at = begin;
    return !half_a_pair;
  }

  bool string() {
    if (!take('"'))
      return false;
    for (utf8_state character; at < text.size(); ++at) {
      const auto c = static_cast<unsigned char>(text[at]);
      if (character.advance(c) == utf8_state::step::invalid || c < 0x20)
        return false;
      if (c == '"')
        return ++at > 0;
      if (c != '\\')
        continue;
      ++at;
      if (!next_is_in("\"\\/bfnrtu"))
        return false;
      if (text[at] == 'u' && !code_point())
        return false;
    }
    return false;
  }

  bool scalar() {
    return next_is('"') ? string()
      : next_is('t')    ? word("true")
      : next_is('f')    ? word("false")
      : next_is('n')    ? word("null")
                        : number();
  }

  bool key() {
    skip_space();
    if (!string())
      return false;
    skip_space();
    return take(':');
  }

  bool document() {
    std::vector<char> open; // the brackets that close what is open
    for (;;) {
      // A value begins here.
      skip_space();
      const bool object = next_is('{');
      if (object || next_is('[')) {
        ++at;
        skip_space();
        if (!take(object ? '}' : ']')) {
          open.push_back(object ? '}' : ']');
          if (object && !key())
            return false;
          continue;
        }
      } else if (!scalar()) {
        return false;
      }
      // It has ended.
      for (;;) {
        skip_space();
        if (open.empty())
          return at == text.size();
        if (take(','))
          break;
        if (!take(open.back()))
          return false;
        open.pop_back();
      }
      if (open.back() == '}' && !key())
        return false;
    }
  }
};

} // namespace

std::optional<fault> find_fault(std::string_view text) {
  scanner reader{text};
  if (reader.document())
    return std::nullopt;
  return fault{reader.at, reader.half_a_pair};
}

std::size_t line_of_fault(std::string_view text) {
  const auto found = find_fault(text);
  return found ? 1 + static_cast<std::size_t>(std::ranges::count(text.substr(0, found->at), '\n')) : 0;
}

} // namespace troupe::json
