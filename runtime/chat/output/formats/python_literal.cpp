#include "runtime/chat/output/formats/python_literal.hpp"

#include "runtime/chat/output/json_scanner.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <array>
#include <utility>

namespace troupe {

namespace {

constexpr int deepest_literal = 64;

struct no_literal {};

class literal_reader {
public:
  literal_reader(std::string_view text, std::string_view quote) : text_(text), quote_(quote) {}

  std::string whole() {
    auto result = value(0);
    skip_space();
    if (at_ < text_.size())
      throw no_literal{};
    return result;
  }

  /// All of the text is within a string.
  std::string within_string() {
    std::string result;
    while (at_ < text_.size())
      if (const char c = next(); c == '\\' && at_ < text_.size())
        escape(result);
      else
        result += c;
    return result;
  }

private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char next() {
    if (at_ >= text_.size())
      throw no_literal{};
    return text_[at_++];
  }

  std::string value(int depth) {
    if (depth > deepest_literal)
      throw no_literal{};
    skip_space();
    if (marked())
      return json_text(to_utf8(marked_string()));
    switch (peek()) {
      case '"':
      case '\'': return json_text(to_utf8(string()));
      case '[':
      case '(': return list(next() == '[' ? ']' : ')', depth);
      case '{': ++at_; return dict(depth);
      default: return word();
    }
  }

  bool marked() const { return !quote_.empty() && text_.substr(at_).starts_with(quote_); }

  std::string marked_string() {
    const auto first = at_ + quote_.size();
    auto end = text_.find(quote_, first);
    while (end != text_.npos && !closes(end + quote_.size()))
      end = text_.find(quote_, end + 1);
    if (end == text_.npos)
      throw no_literal{};
    at_ = end + quote_.size();
    auto result = std::string(text_.substr(first, end - first));
    for (auto at = result.find(quote_); at != result.npos; at = result.find(quote_, at))
      result.replace(at, quote_.size(), "\""); // models write it for a quote, too
    return result;
  }

  /// Whether a string may end in front of this: what is not escaped within a string is no quote.
  bool closes(std::size_t at) const {
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\n' || text_[at] == '\t' || text_[at] == '\r'))
      ++at;
    return at == text_.size() || std::string_view(",]}):").find(text_[at]) != std::string_view::npos;
  }

  std::string key() {
    if (marked())
      return marked_string();
    if (peek() == '"' || peek() == '\'')
      return string();
    const auto first = at_;
    while (at_ < text_.size() && std::string_view(",:()[]{}\"' \n\t\r").find(text_[at_]) == std::string_view::npos)
      ++at_;
    if (at_ == first)
      throw no_literal{};
    return std::string(text_.substr(first, at_ - first));
  }

  std::string string() {
    const char quote = next();
    std::string result;
    for (;;) {
      const char c = next();
      if (c == quote && closes(at_))
        return result;
      if (c != '\\') {
        result += c;
        continue;
      }
      escape(result);
    }
  }

  /// Behind a backslash.
  void escape(std::string& result) {
    switch (const char escape = next()) {
      case 'n': result += '\n'; break;
      case 't': result += '\t'; break;
      case 'r': result += '\r'; break;
      case '0': result += '\0'; break;
      case 'x': append_char(result, code(2)); break;
      case 'u': unicode(result); break;
      case '\n': break;
      case '\\':
      case '\'':
      case '"':
      case '/': result += escape; break;
      default: // Python keeps what it does not know
        result += '\\';
        result += escape;
    }
  }

  char32_t code(int digits) {
    char32_t result = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = next();
      const int digit = c >= '0' && c <= '9' ? c - '0'
        : c >= 'a' && c <= 'f'               ? c - 'a' + 10
        : c >= 'A' && c <= 'F'               ? c - 'A' + 10
                                             : -1;
      if (digit < 0)
        throw no_literal{};
      result = result * 16 + static_cast<char32_t>(digit);
    }
    return result;
  }

  /// Also in two halves, as JSON has them.
  void unicode(std::string& to) {
    auto c = code(4);
    if (c >= 0xD800 && c < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const auto low = code(4);
      if (low < 0xDC00 || low > 0xDFFF)
        throw no_literal{};
      c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if (c >= 0xD800 && c < 0xE000)
      throw no_literal{};
    append_char(to, c);
  }

  std::string list(char end, int depth) {
    std::string result = "[";
    for (skip_space(); peek() != end; skip_space()) {
      result += (result.size() > 1 ? ", " : "") + value(depth + 1);
      skip_space();
      if (peek() != end && next() != ',')
        throw no_literal{};
    }
    ++at_;
    return result + ']';
  }

  std::string dict(int depth) {
    std::string result = "{";
    for (skip_space(); peek() != '}'; skip_space()) {
      result += (result.size() > 1 ? ", " : "") + json_text(to_utf8(key())) + ": ";
      skip_space();
      if (next() != ':')
        throw no_literal{};
      result += value(depth + 1);
      skip_space();
      if (peek() != '}' && next() != ',')
        throw no_literal{};
    }
    ++at_;
    return result + '}';
  }

  std::string word() {
    const auto first = at_;
    while (at_ < text_.size() && std::string_view(",:()[]{} \n\t\r").find(text_[at_]) == std::string_view::npos)
      ++at_;
    const auto text = text_.substr(first, at_ - first);
    constexpr auto words = std::to_array<std::pair<std::string_view, std::string_view>>(
      {{"True", "true"}, {"False", "false"}, {"None", "null"}, {"true", "true"}, {"false", "false"}, {"null", "null"}});
    for (const auto& [python, json] : words)
      if (text == python)
        return std::string(json);
    return number(text);
  }

  /// A number as JSON writes it: 7 for +7, 007 and 7_0 is 70, .5 and 5. have digits.
  static std::string number(std::string_view text) {
    std::string sign, digits;
    if (text.starts_with('-') || text.starts_with('+')) {
      sign = text.front() == '-' ? "-" : "";
      text.remove_prefix(1);
    }
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] != '_' || i == 0 || i + 1 == text.size())
        digits += text[i];
    while (digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9')
      digits.erase(0, 1);
    if (digits.starts_with('.') && digits.size() > 1)
      digits.insert(0, 1, '0');
    if (digits.ends_with('.') && digits.size() > 1)
      digits += '0';
    json_scanner scanner;
    for (const char c : sign + digits)
      if (scanner.take(c) != json_scanner::status::more)
        throw no_literal{};
    const bool is_number = !digits.empty() && digits[0] >= '0' && digits[0] <= '9';
    if (!is_number || !scanner.can_end())
      throw no_literal{};
    return sign + digits;
  }

  std::string_view text_, quote_;
  std::size_t at_ = 0;
};

} // namespace

std::optional<std::string> python_literal(std::string_view text, std::string_view quote) {
  try {
    return literal_reader(text, quote).whole();
  } catch (const no_literal&) {
    return std::nullopt;
  }
}

std::string python_string(std::string_view text) {
  try {
    return literal_reader(text, {}).within_string();
  } catch (const no_literal&) { // an escape is none
    return std::string(text);
  }
}

} // namespace troupe
