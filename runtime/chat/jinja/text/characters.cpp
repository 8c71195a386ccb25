// Code points and their classes.
#include "runtime/chat/jinja/text/walk.hpp"

#include <utf8proc.h>

#include <algorithm>

namespace troupe::jinja::text {

// -- code points --------------------------------------------------------------

std::size_t length(meter& m, std::string_view s) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < s.size(); at += meter::part) {
    const auto some = s.substr(at, meter::part);
    m.spend(some.size() / 4);
    n += static_cast<std::size_t>(std::count_if(some.begin(), some.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }
  return n;
}

std::size_t offset(meter& m, std::string_view s, std::size_t index) {
  std::size_t found = s.size();
  walk(m, s, [&](char32_t, std::size_t begin, auto) {
    if (index-- > 0)
      return true;
    found = begin;
    return false;
  });
  return found;
}

char32_t last(std::string_view s, std::size_t end, std::size_t& begin) {
  begin = end - 1;
  while (begin > 0 && (s[begin] & 0xC0) == 0x80)
    --begin;
  auto at = begin;
  return next_char(s.substr(0, end), at);
}

// -- classes ------------------------------------------------------------------

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
    (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  const auto k = category(c);
  return c == ' ' || (k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS);
}

bool is_identifier(char32_t c) {
  if (c < 0x80)
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_MC) || k == UTF8PROC_CATEGORY_ND ||
    k == UTF8PROC_CATEGORY_NL;
}

bool all(meter& m, std::string_view s, bool (*is)(char32_t)) {
  bool holds = !s.empty();
  walk(m, s, [&](char32_t c, auto, auto) { return holds = is(c); });
  return holds;
}

std::size_t count_words(meter& m, std::string_view s) {
  std::size_t words = 0;
  bool inside = false;
  walk(m, s, [&](char32_t c, auto, auto) {
    const bool before = std::exchange(inside, c == '_' || is_alpha(c) || is_numeric(c));
    words += inside && !before ? 1 : 0;
    return true;
  });
  return words;
}

namespace {

bool all_cased(meter& m, std::string_view s, bool (*wanted)(char32_t), bool (*unwanted)(char32_t)) {
  bool found = false, pure = true;
  walk(m, s, [&](char32_t c, auto, auto) {
    found |= wanted(c);
    return pure = !unwanted(c);
  });
  return found && pure;
}

} // namespace

bool all_lower(meter& m, std::string_view s) { return all_cased(m, s, is_lower, is_upper); }

bool all_upper(meter& m, std::string_view s) { return all_cased(m, s, is_upper, is_lower); }

} // namespace troupe::jinja::text
