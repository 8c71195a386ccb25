// A place in the text of a grammar or of a pattern: what their parsers share. Header only, internal to them.
#pragma once

#include "runtime/guide/limits.hpp"
#include "runtime/support/text/hex.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::guides {

class text_cursor {
public:
  /// `by_lines`: errors say which line it is, else which byte.
  text_cursor(std::string_view text, std::string name, bool by_lines = true)
    : text_(text), name_(std::move(name)), by_lines_(by_lines) {
    if (!is_utf8(text))
      refuse("is not UTF-8");
  }

  bool at_end() const { return pos_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }
  bool sees(std::string_view what) const { return text_.substr(pos_).starts_with(what); }
  bool take(std::string_view what) {
    if (!sees(what))
      return false;
    pos_ += what.size();
    return true;
  }
  /// Refuses a character that cannot stand here.
  [[noreturn]] void refuse_character() const {
    auto end = pos_;
    next_char(text_, end);
    refuse("has an unexpected `" + std::string(text_.substr(pos_, end - pos_)) + "`");
  }
  char32_t take_character() { return next_char(text_, pos_); }
  std::size_t position() const { return pos_; }
  void go_to(std::size_t position) { pos_ = position; }
  std::string_view since(std::size_t begin) const { return text_.substr(begin, pos_ - begin); }
  std::string_view rest() const { return text_.substr(pos_); }

  /// Blanks, comments that begin with `comment`, and if asked for the ends of lines.
  void skip_space(std::string_view comment, bool lines) {
    for (;;) {
      if (peek() == ' ' || peek() == '\t' || (lines && (peek() == '\n' || peek() == '\r')))
        ++pos_;
      else if (sees(comment) && !at_end())
        pos_ = std::min(text_.find('\n', pos_), text_.size());
      else
        return;
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  }
  std::string name() {
    const auto begin = pos_;
    while (is_name(peek()))
      ++pos_;
    return std::string(since(begin));
  }
  std::optional<std::uint32_t> number() {
    if (peek() < '0' || peek() > '9')
      return {};
    std::uint32_t n = 0;
    for (; peek() >= '0' && peek() <= '9'; ++pos_)
      n = std::min<std::uint32_t>(100'000'000, n * 10 + static_cast<std::uint32_t>(peek() - '0'));
    if (n > 1'000'000)
      refuse("repeats more than 1000000 times");
    return n;
  }

  /// Behind a backslash.
  char32_t escape() {
    if (at_end())
      refuse("has a malformed escape");
    const auto c = take_character();
    switch (c) {
      case 'n': return '\n';
      case 't': return '\t';
      case 'r': return '\r';
      case 'f': return '\f';
      case 'b': return '\b';
      case 'x': return hex(2);
      case 'u': return valid(hex(4));
      case 'U': return valid(hex(8));
      default: return c;
    }
  }
  char32_t hex(int digits) {
    char32_t c = 0;
    for (int i = 0; i < digits; ++i, ++pos_) {
      const auto digit = hex_value(peek());
      if (!digit)
        refuse("has a malformed escape");
      c = c * 16 + *digit;
    }
    return c;
  }

  /// "the grammar (line 3) WHAT", or "the pattern WHAT (at byte 7)".
  [[noreturn]] void refuse(const std::string& what) const {
    if (!by_lines_)
      throw failure(errc::bad_request, name_ + ' ' + what + " (at byte " + std::to_string(pos_) + ")");
    const auto line = 1 +
      std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(pos_, text_.size())), '\n');
    throw failure(errc::bad_request, name_ + " (line " + std::to_string(line) + ") " + what);
  }

protected:
  std::string_view text_;
  std::size_t pos_ = 0;

private:
  char32_t valid(char32_t c) const {
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
      refuse("names a character that Unicode lacks");
    return c;
  }

  std::string name_;
  bool by_lines_;
};

} // namespace troupe::guides
