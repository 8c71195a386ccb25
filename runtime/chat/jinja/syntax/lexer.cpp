#include "runtime/chat/jinja/syntax/lexer.hpp"

#include "runtime/chat/jinja/text/text.hpp"
#include "runtime/support/text/ascii.hpp"
#include "runtime/support/text/hex.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>

namespace troupe::jinja {

std::string to_string(position at) {
  return "template line " + std::to_string(at.line) + ", column " + std::to_string(at.column);
}

void refuse(position at, const std::string& what, errc code) { throw failure(code, to_string(at) + ": " + what); }

namespace {

using type = token::type;

/// Line ends become \n; one at the very end is dropped.
std::string normalized(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n')
      continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n'))
    out.pop_back();
  return out;
}

bool decimal(char c) { return c >= '0' && c <= '9'; }
bool octal(char c) { return c >= '0' && c <= '7'; }
bool binary(char c) { return c == '0' || c == '1'; }
bool hex(char c) { return hex_value(c).has_value(); }

class lexer {
public:
  explicit lexer(std::string_view source) : source_(normalized(source)) {
    for (std::size_t i = 0; i < source_.size(); ++i)
      if (source_[i] == '\n')
        lines_.push_back(i + 1);
  }

  std::vector<token> run() {
    while (at_ < source_.size())
      root();
    push(type::end, {}, at_);
    return std::move(tokens_);
  }

private:
  position place(std::size_t offset) const {
    const auto line = std::ranges::upper_bound(lines_, offset) - lines_.begin() - 1;
    return {static_cast<int>(line) + 1, static_cast<int>(offset - lines_[static_cast<std::size_t>(line)]) + 1};
  }

  [[noreturn]] void fail(const std::string& what, std::size_t offset) const { refuse(place(offset), what); }

  void push(type is, std::string text, std::size_t offset) { tokens_.push_back({is, std::move(text), place(offset)}); }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  bool next_is(std::string_view what) const { return source_.compare(at_, what.size(), what) == 0; }

  bool skip(std::string_view what) {
    const bool found = next_is(what);
    at_ += found ? what.size() : 0;
    return found;
  }

  /// `s` without white space at the given sides.
  static std::string_view stripped(std::string_view s, bool left, bool right) {
    auto unlimited = meter::unlimited();
    return text::strip(unlimited, s, {}, left, right);
  }

  void skip_space() {
    const auto rest = std::string_view(source_).substr(at_);
    at_ += rest.size() - stripped(rest, true, false).size();
  }

  /// Skips `-%}` and the white space that follows, `+%}`, or `%}` and (with `trim`) one line end. False if none is
  /// next.
  bool skip_end(std::string_view end, bool trim) {
    const auto begin = at_;
    if (skip("-") && skip(end)) {
      skip_space();
      return true;
    }
    at_ = begin;
    if (trim && skip("+") && skip(end))
      return true;
    at_ = begin;
    if (!skip(end))
      return false;
    if (trim)
      skip("\n");
    return true;
  }

  /// Adds the data from `begin` up to the tag at `end`, stripped at its end as the tag's sign or lstrip_blocks demands.
  void data(std::size_t begin, std::size_t end, char sign, bool block) {
    std::string_view part = std::string_view(source_).substr(begin, end - begin);
    if (sign == '-') {
      part = stripped(part, false, true);
    } else if (sign != '+' && block) {
      const auto line = part.rfind('\n') + 1; // npos + 1 is 0
      const bool starts_line = line > 0 || begin == 0 || source_[begin - 1] == '\n';
      if (starts_line && stripped(part.substr(line), true, false).empty())
        part = part.substr(0, line);
    }
    if (!part.empty())
      push(type::data, std::string(part), begin);
  }

  static char sign_at(std::string_view s, std::size_t at) {
    return at < s.size() && (s[at] == '-' || s[at] == '+') ? s[at] : '\0';
  }

  void root() {
    const auto begin = at_;
    auto tag = begin;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == source_.npos) {
        at_ = source_.size();
        push(type::data, source_.substr(begin), begin);
        return;
      }
      if (tag + 1 < source_.size() && (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#'))
        break;
    }
    const char what = source_[tag + 1];
    const char sign = sign_at(source_, tag + 2);
    data(begin, tag, sign, what != '{');
    at_ = tag + (sign ? 3 : 2);
    if (what == '#')
      comment(tag);
    else if (what == '{')
      code(tag, type::variable_begin, type::variable_end, "}}", false);
    else if (!raw(tag))
      code(tag, type::block_begin, type::block_end, "%}", true);
  }

  void comment(std::size_t tag) {
    // `-#}` and `+#}` also end a comment.
    for (; at_ < source_.size(); ++at_)
      if (skip_end("#}", true))
        return;
    fail("a comment is not closed", tag);
  }

  bool raw(std::size_t tag) {
    const auto begin = at_;
    skip_space();
    if (skip("raw")) {
      skip_space();
      if (skip_end("%}", false)) {
        raw_body(tag);
        return true;
      }
    }
    at_ = begin;
    return false;
  }

  void raw_body(std::size_t tag) {
    const auto begin = at_;
    for (auto end = source_.find("{%", at_); end != source_.npos; end = source_.find("{%", end + 1)) {
      const char sign = sign_at(source_, end + 2);
      at_ = end + (sign ? 3 : 2);
      skip_space();
      if (!skip("endraw"))
        continue;
      skip_space();
      if (skip_end("%}", true)) {
        data(begin, end, sign, true);
        return;
      }
    }
    fail("a raw block is not closed", tag);
  }

  /// Adds the tokens within {{ }} or {% %}.
  void code(std::size_t tag, type begin, type end, std::string_view close, bool block) {
    push(begin, {}, tag);
    std::string open; // the closing brackets of those open
    for (;;) {
      const auto start = at_;
      if (open.empty() && skip_end(close, block)) {
        push(end, {}, start);
        return;
      }
      skip_space();
      if (at_ >= source_.size()) {
        push(type::end, {}, at_);
        return;
      }
      if (at_ == start)
        one(open);
    }
  }

  void one(std::string& open) {
    const char c = peek();
    if (decimal(c))
      number();
    else if (c == '"' || c == '\'')
      string(c);
    else if (!name())
      operation(open);
  }

  bool name() {
    const auto begin = at_;
    for (auto next = at_; next < source_.size() && text::is_identifier(next_char(source_, next));)
      at_ = next;
    if (at_ > begin)
      push(type::name, source_.substr(begin, at_ - begin), begin);
    return at_ > begin;
  }

  /// The end of the digits at `from`, which single underscores may separate.
  std::size_t digits(std::size_t from, bool (*is)(char)) const {
    const auto digit = [&](std::size_t i) { return i < source_.size() && is(source_[i]); };
    while (digit(from) || (from < source_.size() && source_[from] == '_' && digit(from + 1)))
      ++from;
    return from;
  }

  void number() {
    const auto begin = at_;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    auto whole = digits(at_, decimal), end = whole;
    const auto digit_at = [&](std::size_t i) { return i < source_.size() && decimal(source_[i]); };
    if (!after_dot && end < source_.size() && source_[end] == '.' && digit_at(end + 1))
      end = digits(end + 1, decimal);
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const auto sign = sign_at(source_, end + 1) ? end + 2 : end + 1;
      if (digit_at(sign))
        end = digits(sign, decimal);
    }
    const bool real = end > whole;
    if (!real && peek() == '0') {
      const char base = ascii_lower(peek(1));
      end = digits(begin, [](char c) { return c == '0'; }); // 012 is not a number
      if (base == 'x' || base == 'o' || base == 'b')
        if (const auto last = digits(begin + 2, base == 'x' ? hex : base == 'o' ? octal : binary); last > begin + 2)
          end = last;
    }
    at_ = end;
    auto digits_only = source_.substr(begin, end - begin);
    std::erase(digits_only, '_');
    push(real ? type::real : type::integer, std::move(digits_only), begin);
  }

  void string(char quote) {
    const auto begin = at_++;
    std::string out;
    while (peek() != quote || at_ >= source_.size()) {
      if (at_ >= source_.size())
        fail("a string is not closed", begin);
      if (peek() != '\\')
        out += source_[at_++];
      else
        escape(out, begin);
    }
    ++at_;
    push(type::string, std::move(out), begin);
  }

  /// Python's escapes. An unknown one stands for itself.
  void escape(std::string& out, std::size_t begin) {
    constexpr std::string_view letters = "abfnrtv\\'\"\n", meanings = "\a\b\f\n\r\t\v\\'\"";
    const char c = peek(1);
    if (at_ + 1 >= source_.size())
      fail("a string is not closed", begin);
    if (const auto found = letters.find(c); found != letters.npos) {
      if (c != '\n')
        out += meanings[found];
      at_ += 2;
      return;
    }
    if (c >= '0' && c <= '7') {
      char32_t code = 0;
      ++at_;
      for (int i = 0; i < 3 && peek() >= '0' && peek() <= '7'; ++i, ++at_)
        code = code * 8 + static_cast<char32_t>(peek() - '0');
      append_char(out, code);
      return;
    }
    const std::size_t size = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == 'N')
      fail("characters by name (\\N) are not supported", at_);
    if (size == 0) {
      out += '\\';
      ++at_;
      return;
    }
    char32_t code = 0;
    for (std::size_t i = 2; i < 2 + size; ++i) {
      const auto digit = hex_value(peek(i));
      if (!digit)
        fail(std::string("an escape \\") + c + " needs " + std::to_string(size) + " hexadecimal digits", at_);
      code = code * 16 + *digit;
      if (code > 0x10FFFF)
        fail("an escape names no Unicode character", at_);
    }
    if (code >= 0xD800 && code < 0xE000)
      fail("an escape names half a character (a surrogate)", at_);
    append_char(out, code);
    at_ += 2 + size;
  }

  void operation(std::string& open) {
    constexpr std::string_view pairs[] = {"//", "**", "==", "!=", ">=", "<="}, singles = "+-/*%~[](){}><=.:|,;";
    const auto begin = at_;
    std::size_t size = singles.find(peek()) != singles.npos ? 1 : 0;
    for (auto pair : pairs)
      if (next_is(pair))
        size = 2;
    if (size == 0) {
      auto end = at_;
      next_char(source_, end);
      auto unlimited = meter::unlimited();
      fail("unexpected character " + text::repr(unlimited, source_.substr(at_, end - at_)), at_);
    }
    const char c = peek();
    if (size == 1 && (c == '(' || c == '[' || c == '{'))
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (size == 1 && (c == ')' || c == ']' || c == '}')) {
      if (open.empty() || open.back() != c)
        fail(std::string("unexpected '") + c + '\'' +
               (open.empty() ? "" : std::string(", expected '") + open.back() + "'"),
             begin);
      open.pop_back();
    }
    at_ += size;
    push(type::op, source_.substr(begin, size), begin);
  }

  std::string source_;
  std::vector<std::size_t> lines_{0}; // offsets of line starts
  std::size_t at_ = 0;
  std::vector<token> tokens_;
};

} // namespace

std::vector<token> tokenize(std::string_view source) {
  if (!is_utf8(source))
    throw failure(errc::bad_file, "the template is not valid UTF-8");
  return lexer(source).run();
}

} // namespace troupe::jinja
