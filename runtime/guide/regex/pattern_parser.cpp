#include "runtime/guide/regex/pattern_parser.hpp"

#include "runtime/guide/text_cursor.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace troupe::guides {

namespace {

using kind = pattern_node::kind;

const code_points digit_set{{'0', '9'}};
const code_points word_set{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const code_points ascii_space_set{{0x09, 0x0D}, {' ', ' '}};
const code_points ecma_space_set{{0x09, 0x0D},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                 {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                 {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

class parser : text_cursor {
public:
  parser(std::string_view text, const pattern_dialect& dialect)
    : text_cursor(text, "the regular expression", false), dialect_(dialect) {}

  pattern_node parse() {
    inline_flags();
    auto result = choice();
    if (!at_end())
      refuse("has an unmatched `)`");
    return result;
  }

private:
  static constexpr int deepest = 200;

  void inline_flags() {
    if (!text_.starts_with("(?") || text_.size() < 3 || text_[2] < 'a' || text_[2] > 'z')
      return;
    const auto close = text_.find(')');
    if (close == text_.npos)
      refuse("has an unmatched `(`");
    const auto flags = text_.substr(2, close - 2);
    if (flags.find_first_not_of("isu") != flags.npos)
      return; // the group's own parser refuses it
    any_case_ = flags.find('i') != flags.npos;
    dot_all_ = flags.find('s') != flags.npos;
    pos_ = close + 1;
  }

  pattern_node choice() {
    if (++depth_ > deepest)
      refuse("is nested deeper than " + std::to_string(deepest));
    pattern_node result{.what = kind::choice};
    do
      result.parts.push_back(sequence());
    while (take("|"));
    --depth_;
    for (const auto& p : result.parts)
      result.pure &= p.pure;
    if (result.parts.size() == 1)
      return pattern_node(std::move(result.parts.front()));
    return result;
  }

  pattern_node sequence() {
    pattern_node result;
    while (!at_end() && peek() != '|' && peek() != ')') {
      result.parts.push_back(quantified(atom()));
      result.pure &= result.parts.back().pure;
    }
    return result;
  }

  pattern_node quantified(pattern_node inner) {
    while (!at_end()) {
      std::uint32_t least = 0, most = unlimited;
      const auto start = pos_;
      if (take("*")) {
      } else if (take("+"))
        least = 1;
      else if (take("?"))
        most = 1;
      else if (peek() != '{' || !bounds(least, most))
        return inner;
      if (peek() == '+') {
        pos_ = start;
        refuse("has a possessive quantifier, which is not supported");
      }
      take("?"); // lazy: the same texts match
      if (most < least)
        refuse("has a repetition whose limits are out of order");
      const bool pure = inner.pure;
      pattern_node outer{.what = kind::repeat, .least = least, .most = most, .pure = pure};
      outer.parts.push_back(std::move(inner));
      inner = std::move(outer);
      if (++chain_ > deepest * 50)
        refuse("has too many quantifiers");
    }
    return inner;
  }

  /// "{2}", "{2,}", "{2,5}"; other braces are literal.
  bool bounds(std::uint32_t& least, std::uint32_t& most) {
    const auto start = pos_++;
    if (const auto low = number()) {
      least = most = *low;
      if (take(","))
        most = peek() == '}' ? unlimited : number().value_or(unlimited);
      if (take("}"))
        return true;
    }
    pos_ = start;
    least = 0;
    most = unlimited;
    return false;
  }

  pattern_node characters(code_points set) {
    return {.what = kind::characters, .set = any_case_ ? set.both_cases() : std::move(set)};
  }

  pattern_node atom() {
    switch (peek()) {
      case '(': return group();
      case '[': return characters(bracketed());
      case '.':
        ++pos_;
        if (dot_all_)
          return characters(code_points::all());
        return characters(
          (dialect_.ecma ? code_points{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}} : code_points::of('\n'))
            .complement());
      case '^': ++pos_; return {.what = kind::begin, .pure = false};
      case '$': ++pos_; return {.what = kind::end, .pure = false};
      case '*':
      case '+':
      case '?': refuse("has a quantifier with nothing to repeat");
      case '\\': return escape();
      default: return characters(code_points::of(take_character()));
    }
  }

  pattern_node group() {
    ++pos_;
    auto what = kind::sequence;
    const auto outside = std::pair(any_case_, dot_all_);
    if (take("?")) {
      if (take("="))
        what = kind::ahead;
      else if (take("!"))
        what = kind::not_ahead;
      else if (peek() == '<' && (peek(1) == '=' || peek(1) == '!'))
        refuse("has a lookbehind, which is not supported");
      else if (take("<") || take("P<")) {
        const auto close = text_.find('>', pos_);
        if (close == text_.npos)
          refuse("has a group whose name does not end");
        pos_ = close + 1;
      } else if (!scoped_flags())
        refuse("has a group of an unknown kind");
    }
    auto inner = choice();
    std::tie(any_case_, dot_all_) = outside;
    if (!take(")"))
      refuse("has an unmatched `(`");
    if (what == kind::sequence)
      return inner;
    pattern_node result{.what = what, .pure = false};
    result.parts.push_back(std::move(inner));
    return result;
  }

  /// "i:", "s-i:" or ":" alone.
  bool scoped_flags() {
    for (bool on = true; !at_end(); ++pos_)
      if (take(":"))
        return true;
      else if (peek() == '-' && on)
        on = false;
      else if (peek() == 'i')
        any_case_ = on;
      else if (peek() == 's')
        dot_all_ = on;
      else if (peek() != 'u')
        return false;
    return false;
  }

  char32_t code_unit() { // behind "\u"
    if (take("{")) {
      char32_t c = 0;
      while (peek() != '}') {
        c = c * 16 + hex(1);
        if (c > 0x10FFFF)
          refuse("names a character beyond Unicode");
      }
      ++pos_;
      return c;
    }
    const auto high = hex(4);
    if (high >= 0xD800 && high < 0xDC00 && take("\\u")) {
      const auto low = hex(4);
      if (low < 0xDC00 || low > 0xDFFF)
        refuse("has half of a surrogate pair");
      return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    return high;
  }

  /// The set of `\d`, `\p{L}` and the like, if one follows; the backslash has been read.
  std::optional<code_points> named_set() {
    const auto& space = dialect_.ecma ? ecma_space_set : ascii_space_set;
    switch (peek()) {
      case 'd': return ++pos_, digit_set;
      case 'D': return ++pos_, digit_set.complement();
      case 'w': return ++pos_, word_set;
      case 'W': return ++pos_, word_set.complement();
      case 's': return ++pos_, space;
      case 'S': return ++pos_, space.complement();
      case 'p':
      case 'P': {
        const bool inverted = peek() == 'P';
        ++pos_;
        std::string_view name = text_.substr(pos_, 1);
        if (take("{")) {
          const auto close = text_.find('}', pos_);
          if (close == text_.npos)
            refuse("has a malformed `\\p`");
          name = text_.substr(pos_, close - pos_);
          pos_ = close + 1;
        } else
          ++pos_;
        for (const std::string_view prefix : {"gc=", "General_Category="})
          if (name.starts_with(prefix))
            name.remove_prefix(prefix.size());
        if (name == "Letter")
          name = "L";
        else if (name == "Number")
          name = "N";
        else if (name == "Punctuation")
          name = "P";
        const auto known = categories_.find(name);
        auto set = known != categories_.end() ? known->second
          : name.empty() || name.size() > 2   ? code_points()
                                              : categories_[std::string(name)] = code_points::category(name);
        if (set.empty())
          refuse("names a property of characters that is not supported: `" + std::string(name) + "`");
        return inverted ? set.complement() : set;
      }
      default: return {};
    }
  }

  char32_t escaped_character() {
    const auto c = take_character();
    switch (c) {
      case 'n': return '\n';
      case 't': return '\t';
      case 'r': return '\r';
      case 'f': return '\f';
      case 'v': return '\v';
      case '0': return '\0';
      case 'x': return hex(2);
      case 'u': return code_unit();
      case 'U': return hex(8);
      case 'c':
        if ((peek() | 32) >= 'a' && (peek() | 32) <= 'z')
          return static_cast<char32_t>(text_[pos_++] & 31);
        refuse("has a malformed escape");
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
          refuse("has an escape that is not supported: `\\" + std::string(1, static_cast<char>(c)) + "`");
        return c;
    }
  }

  pattern_node escape() {
    ++pos_;
    if (at_end())
      refuse("ends in a backslash");
    if (auto set = named_set())
      return characters(std::move(*set));
    const auto c = peek();
    if (c >= '1' && c <= '9')
      refuse("has a backreference, which is not regular");
    if (c == 'b' || c == 'B')
      refuse("has a word boundary, which is not supported");
    if (!dialect_.ecma && (take("A")))
      return {.what = kind::begin, .pure = false};
    if (!dialect_.ecma && (take("z") || take("Z")))
      return {.what = kind::end, .pure = false};
    if (c == 'k')
      refuse("has a backreference, which is not regular");
    return characters(code_points::of(escaped_character()));
  }

  code_points bracketed() {
    ++pos_;
    const bool inverted = take("^");
    code_points set;
    std::vector<code_points::range> ranges;
    bool first = true;
    for (;; first = false) {
      if (at_end())
        refuse("has an unmatched `[`");
      if (peek() == ']' && (!first || dialect_.ecma)) {
        ++pos_;
        break;
      }
      const auto low = bracket_item(set);
      if (!low)
        continue;
      auto high = *low;
      if (peek() == '-' && peek(1) != ']' && pos_ + 1 < text_.size()) {
        ++pos_;
        if (const auto bound = bracket_item(set))
          high = *bound;
        else
          ranges.push_back({'-', '-'}); // [a-\d]
        if (high < *low)
          refuse("has a range whose limits are out of order");
      }
      ranges.push_back({*low, high});
    }
    set.add(std::move(ranges));
    if (any_case_)
      set = set.both_cases();
    return inverted ? set.complement() : set;
  }

  /// One character, or nothing after adding a named set.
  std::optional<char32_t> bracket_item(code_points& set) {
    if (peek() != '\\')
      return take_character();
    ++pos_;
    if (at_end())
      refuse("ends in a backslash");
    if (const auto named = named_set()) {
      set.add(*named);
      return {};
    }
    if (take("b"))
      return U'\b';
    if (take("-"))
      return U'-';
    return escaped_character();
  }

  pattern_dialect dialect_;
  int depth_ = 0;
  int chain_ = 0;
  bool any_case_ = false, dot_all_ = false;
  std::map<std::string, code_points, std::less<>> categories_; // that the pattern names
};

} // namespace

pattern_node parse_pattern(std::string_view pattern, const pattern_dialect& dialect) {
  return parser(pattern, dialect).parse();
}

} // namespace troupe::guides
