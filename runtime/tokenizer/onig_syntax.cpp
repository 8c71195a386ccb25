// Translates regular expressions from Oniguruma (Ruby syntax) to PCRE2 in one pass. Classes that the two libraries
// define differently are spelled out, constructs that PCRE2 would silently interpret otherwise are refused, and
// everything else is copied.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/support/text/ascii.hpp"
#include "runtime/tokenizer/pattern.hpp"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace troupe::tokenization {

namespace {

// Oniguruma's \w, \s and \h (a hexadecimal digit). PCRE2's \s includes U+180E, its \w excludes marks, and its \h is a
// blank.
constexpr std::string_view word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Outside a class, Oniguruma's \w also has superscripts and fractions of Latin-1.
constexpr std::string_view word_and_latin1 = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr std::string_view space = "\\p{White_Space}";
constexpr std::string_view hexadecimal = "0-9a-fA-F";

// POSIX brackets with different definitions.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> posix_classes = {{
  {"alnum", "\\p{Alphabetic}\\p{Nd}"},
  {"alpha", "\\p{Alphabetic}"},
  {"blank", "\\t\\p{Zs}"},
  {"lower", "\\p{Lowercase}"},
  {"punct", "\\p{P}\\p{S}"},
  {"space", space},
  {"upper", "\\p{Uppercase}"},
  {"word", word},
  {"digit", "\\p{Nd}"},
}};

bool compiles(const std::string& expression) {
  int error = 0;
  std::size_t offset = 0;
  auto* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_UTF | PCRE2_UCP,
                             &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class translator {
public:
  explicit translator(std::string_view in) : in_(in) {}

  std::string run() {
    while (at_ < in_.size()) {
      if (in_class_)
        class_member();
      else
        outside();
    }
    return std::move(out_);
  }

private:
  bool sees(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void copy(std::size_t n = 1) {
    n = std::min(n, in_.size() - at_);
    out_ += in_.substr(at_, n);
    at_ += n;
  }
  void put(std::string_view text, std::size_t skip) {
    out_ += text;
    at_ += skip;
  }

  void outside() {
    const char c = in_[at_];
    switch (c) {
      case '[':
        atom_ = out_.size();
        in_class_ = true;
        copy(sees("[^") ? 2 : 1);
        if (sees("]"))
          copy();
        return;
      case '(':
        groups_.push_back(out_.size());
        copy();
        if (sees("?"))
          group_options();
        return;
      case ')':
        copy();
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
        return;
      case '{': return interval();
      case '*':
      case '+':
      case '?':
      case '|':
      case '^':
      case '$': return copy();
      default: break;
    }
    atom_ = out_.size();
    if (c == '\\')
      return escape();
    copy();
    while (at_ < in_.size() && (static_cast<unsigned char>(in_[at_]) & 0xC0) == 0x80)
      copy();
  }

  // (?imx-imx) and (?imx-imx:...): Ruby's m is PCRE2's s.
  void group_options() {
    std::size_t end = at_ + 1;
    while (end < in_.size() && (is_ascii_letter(in_[end]) || in_[end] == '-'))
      ++end;
    if (end == in_.size() || (in_[end] != ':' && in_[end] != ')'))
      return copy();
    if (in_[end] == ')' && groups_.back() != 0) // Ruby: until the end of the enclosing group, alternatives included
      throw std::invalid_argument("sets an option within the expression, as in a(?i)b, which is not supported");
    for (; at_ < end; ++at_)
      out_ += in_[at_] == 'm' ? 's' : in_[at_];
  }

  // {n}, {n,}, {,n}, {n,m}. A + after one repeats it in Ruby and makes it possessive in PCRE2.
  void interval() {
    std::size_t end = at_ + 1;
    bool digits = false;
    while (end < in_.size() && (is_ascii_digit(in_[end]) || in_[end] == ','))
      digits |= in_[end++] != ',';
    if (end == in_.size() || in_[end] != '}' || !digits) {
      atom_ = out_.size();
      return copy();
    }
    if (sees("{,"))
      put("{0", 1);
    copy(end + 1 - at_);
    if (sees("+")) {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
  }

  void class_member() {
    if (sees("]")) {
      in_class_ = false;
      return copy();
    }
    if (const auto end = in_.find(":]", at_); sees("[:") && end != std::string_view::npos)
      return posix_class(in_.substr(at_ + 2, end - at_ - 2));
    if (sees("["))
      throw std::invalid_argument("has a character class within a class, which is not supported");
    if (sees("&&"))
      throw std::invalid_argument("has an intersection of character classes (&&), which is not supported");
    if (sees("\\"))
      return escape();
    copy();
  }

  void posix_class(std::string_view name) {
    for (const auto& [known, set] : posix_classes) {
      if (name == known)
        return put(set, name.size() + 4);
      if (name.starts_with('^') && name.substr(1) == known)
        throw std::invalid_argument("has the class [:" + std::string(name) + ":], which is not supported");
    }
    copy(name.size() + 4);
  }

  void escape() {
    const char kind = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    switch (kind) {
      case 's': return members(space);
      case 'w': return members(in_class_ ? word : word_and_latin1);
      case 'h': return members(hexadecimal);
      case 'S': return put("\\P{White_Space}", 2);
      case 'W': return others(word_and_latin1);
      case 'H': return others(hexadecimal);
      case 'b':
        if (in_class_)
          return copy(2); // a backspace
        return boundary("(?<=", "(?!", "(?<!", "(?=");
      case 'B': return boundary("(?<=", "(?=", "(?<!", "(?!");
      case 'v': return put("\\x0b", 2);
      case 'Q': // only a letter, not a quotation
      case 'E':
      case 'V': return put(in_.substr(at_ + 1, 1), 2);
      case 'u': return code_point();
      case 'x':
        if (sees("\\x{"))
          return braced();
        if (at_ + 2 < in_.size() && std::string_view("89abcdefABCDEF").find(in_[at_ + 2]) != std::string_view::npos &&
            at_ + 3 < in_.size() && is_ascii_hex(in_[at_ + 3]))
          throw std::invalid_argument("names a single byte of a character (\\x80 or above), which is not supported");
        return copy(2);
      case 'p':
      case 'P': return property();
      default: return copy(2);
    }
  }

  void members(std::string_view set) {
    if (in_class_)
      return put(set, 2);
    out_ += '[';
    put(set, 2);
    out_ += ']';
  }

  void others(std::string_view set) {
    if (in_class_)
      throw std::invalid_argument("has \\W or \\H within a character class, which is not supported");
    out_ += "[^";
    put(set, 2);
    out_ += ']';
  }

  // Word on one side, none on the other (or both alike): (?<=W)(?!W)|(?<!W)(?=W).
  void boundary(std::string_view a, std::string_view b, std::string_view c, std::string_view d) {
    const std::string w = "[" + std::string(word_and_latin1) + "])";
    out_ += "(?:";
    for (auto part : {a, b})
      out_ += std::string(part) + w;
    out_ += '|';
    for (auto part : {c, d})
      out_ += std::string(part) + w;
    put(")", 2);
  }

  void code_point() {
    const auto digits = in_.substr(std::min(at_ + 2, in_.size()), 4);
    if (digits.size() < 4 || !std::all_of(digits.begin(), digits.end(), is_ascii_hex))
      throw std::invalid_argument("has \\u without four hexadecimal digits");
    out_ += "\\x{" + std::string(digits) + "}";
    at_ += 6;
  }

  void braced() {
    const auto end = in_.find('}', at_);
    copy(end == std::string_view::npos ? in_.size() : end + 1 - at_);
  }

  // A script's name means Script in Oniguruma, and by default Script_Extensions in PCRE2.
  void property() {
    const auto end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == std::string_view::npos)
      return copy(2);
    const bool negated = sees("\\p{^") || sees("\\P{^");
    const std::size_t name = at_ + 3 + negated;
    const std::string script = "sc:" + std::string(in_.substr(name, end - name));
    if (end - name > 2 && compiles("\\p{" + script + "}")) {
      out_ += in_.substr(at_, name - at_);
      out_ += script;
      at_ = end;
    }
    braced();
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  bool in_class_ = false;
  std::size_t atom_ = 0;            // start in out_ of the atom that a quantifier applies to
  std::vector<std::size_t> groups_; // starts in out_ of the open groups
};

} // namespace

/// `\s+$` and the like fail at every start within a run of spaces, each time after scanning the whole run. If such an
/// expression matches within a run, it also matches from the run's start, or from the start of the search.
static bool fails_slowly(std::string_view expression) {
  return expression.starts_with("\\s+") && expression.find('|') == std::string_view::npos;
}

std::string to_pcre2(std::string_view expression) {
  const std::string result = translator(expression).run();
  return fails_slowly(expression) ? "(?:\\G|(?<!" + std::string(space) + "))" + result : result;
}

} // namespace troupe::tokenization
