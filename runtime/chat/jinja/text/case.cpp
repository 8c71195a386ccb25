// Case rules.
#include "runtime/chat/jinja/text/walk.hpp"

#include <utf8proc.h>

namespace troupe::jinja::text {

namespace {

using mapping = utf8proc_int32_t (*)(utf8proc_int32_t);

char32_t mapped(char32_t c, mapping map) { return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c))); }

std::string mapped(meter& m, std::string_view s, mapping map) {
  output out(m);
  walk(m, s, [&](char32_t c, auto, auto) {
    out.add(mapped(c, map));
    return true;
  });
  return out.str();
}

/// Upper case; ß is the one common letter that becomes two.
void add_upper(output& out, char32_t c) {
  if (c == U'ß')
    out.add("SS");
  else
    out.add(mapped(c, utf8proc_toupper));
}

} // namespace

std::string lower(meter& m, std::string_view s) { return mapped(m, s, utf8proc_tolower); }

std::string upper(meter& m, std::string_view s) {
  output out(m);
  walk(m, s, [&](char32_t c, auto, auto) {
    add_upper(out, c);
    return true;
  });
  return out.str();
}

std::string capitalize(meter& m, std::string_view s) {
  std::size_t at = 0;
  if (s.empty())
    return {};
  next_char(s, at);
  return mapped(m, s.substr(0, at), utf8proc_totitle) + lower(m, s.substr(at));
}

std::string title(meter& m, std::string_view s) {
  output out(m);
  bool inside = false;
  walk(m, s, [&](char32_t c, auto, auto) {
    out.add(mapped(c, inside ? utf8proc_tolower : utf8proc_totitle));
    inside = is_alpha(c);
    return true;
  });
  return out.str();
}

std::string title_words(meter& m, std::string_view s) {
  output out(m);
  bool inside = false;
  walk(m, s, [&](char32_t c, auto, auto) {
    if (inside)
      out.add(mapped(c, utf8proc_tolower));
    else
      add_upper(out, c);
    inside = !is_space(c) &&
      (c >= 0x80 || std::string_view("-({[<").find(static_cast<char>(c)) == std::string_view::npos);
    return true;
  });
  return out.str();
}

std::string swap_case(meter& m, std::string_view s) {
  output out(m);
  walk(m, s, [&](char32_t c, auto, auto) {
    if (is_upper(c))
      out.add(mapped(c, utf8proc_tolower));
    else
      add_upper(out, c);
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
