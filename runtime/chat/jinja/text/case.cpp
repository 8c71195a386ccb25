// Case rules.
#include "runtime/chat/jinja/text/special_case.hpp"
#include "runtime/chat/jinja/text/walk.hpp"

#include <utf8proc.h>

#include <algorithm>

namespace troupe::jinja::text {

namespace {

using mapping = utf8proc_int32_t (*)(utf8proc_int32_t);

char32_t mapped(char32_t c, mapping map) { return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c))); }

const special_case* special(char32_t c) {
  if (c < special_cases[0].letter)
    return nullptr;
  const auto* found = std::ranges::lower_bound(special_cases, c, {}, &special_case::letter);
  return found != std::end(special_cases) && found->letter == c ? found : nullptr;
}

void add_upper(output& out, char32_t c) {
  if (const auto* more = special(c))
    out.add(more->upper);
  else
    out.add(mapped(c, utf8proc_toupper));
}

void add_title(output& out, char32_t c) {
  if (const auto* more = special(c))
    out.add(more->title);
  else
    out.add(mapped(c, utf8proc_totitle));
}

bool is_cased(char32_t c) {
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LT) ||
    (c >= other_cased[0].first &&
     std::ranges::any_of(other_cased, [c](const letter_range& r) { return c >= r.first && c <= r.last; }));
}

bool is_passed_over(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return ignored_punctuation.find(c) != ignored_punctuation.npos;
  }
}

/// Whether a sigma from `begin` to `end` is the last letter of a word. Two sigmas share no character that is looked at.
bool ends_word(meter& m, std::string_view s, std::size_t begin, std::size_t end) {
  char32_t c = 0;
  bool found = false;
  for (auto at = begin; at > 0 && !found;) {
    m.spend(step);
    c = last(s, at, at);
    found = !is_passed_over(c);
  }
  if (!found || !is_cased(c))
    return false;
  found = false;
  for (auto at = end; at < s.size() && !found;) {
    m.spend(step);
    c = next_char(s, at);
    found = !is_passed_over(c);
  }
  return !found || !is_cased(c);
}

/// The lower case of the character from `begin` to `end` of `s`.
void add_lower(meter& m, output& out, std::string_view s, char32_t c, std::size_t begin, std::size_t end) {
  if (c == 0x0130)
    out.add("i\u0307");
  else if (c == 0x03A3)
    out.add(ends_word(m, s, begin, end) ? char32_t{0x03C2} : char32_t{0x03C3});
  else
    out.add(mapped(c, utf8proc_tolower));
}

} // namespace

std::string lower(meter& m, std::string_view s) {
  output out(m);
  walk(m, s, [&](char32_t c, std::size_t begin, std::size_t end) {
    add_lower(m, out, s, c, begin, end);
    return true;
  });
  return out.str();
}

std::string upper(meter& m, std::string_view s) {
  output out(m);
  walk(m, s, [&](char32_t c, auto, auto) {
    add_upper(out, c);
    return true;
  });
  return out.str();
}

std::string capitalize(meter& m, std::string_view s) {
  output out(m);
  walk(m, s, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (begin == 0)
      add_title(out, c);
    else
      add_lower(m, out, s, c, begin, end);
    return true;
  });
  return out.str();
}

std::string title(meter& m, std::string_view s) {
  output out(m);
  bool inside = false;
  walk(m, s, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (inside)
      add_lower(m, out, s, c, begin, end);
    else
      add_title(out, c);
    inside = is_cased(c);
    return true;
  });
  return out.str();
}

std::string title_words(meter& m, std::string_view s) {
  output out(m);
  std::size_t first_end = 0; // of the word's first character, ahead of which the filter does not look
  bool inside = false;
  walk(m, s, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (inside)
      add_lower(m, out, s.substr(first_end), c, begin - first_end, end - first_end);
    else
      add_upper(out, c);
    const bool before = std::exchange(
      inside,
      !is_space(c) && (c >= 0x80 || std::string_view("-({[<").find(static_cast<char>(c)) == std::string_view::npos));
    if (!before)
      first_end = end;
    return true;
  });
  return out.str();
}

std::string swap_case(meter& m, std::string_view s) {
  output out(m);
  walk(m, s, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (category(c) == UTF8PROC_CATEGORY_LT) // neither
      out.add(c);
    else if (special(c) || mapped(c, utf8proc_toupper) != c)
      add_upper(out, c);
    else
      add_lower(m, out, s, c, begin, end);
    return true;
  });
  return out.str();
}

std::string reverse(meter& m, std::string_view s) {
  m.make(s.size());
  std::string out(s.size(), '\0');
  walk(m, s, [&](char32_t, std::size_t begin, std::size_t end) {
    s.copy(out.data() + (s.size() - end), end - begin, begin);
    return true;
  });
  return out;
}

} // namespace troupe::jinja::text
