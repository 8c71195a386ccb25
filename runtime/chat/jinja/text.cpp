#include "runtime/chat/jinja/text.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

namespace troupe::jinja::text {

namespace {

/// Steps of a code point that is looked up, by its bytes.
constexpr std::size_t step = 4;

/// Calls `each(code point, begin, end)` until it says false. What is charged ahead is little where that is soon.
template <class Each>
void walk(meter& m, std::string_view s, Each each) {
  for (std::size_t at = 0; at < s.size();) {
    const auto end = std::min(s.size(), at + std::clamp<std::size_t>(at, 16, meter::part));
    m.spend(step * (end - at));
    while (at < end) {
      const auto begin = at;
      const auto c = decode(s, at);
      if (!each(c, begin, at))
        return;
    }
  }
}

/// A text that grows, charged.
class output {
public:
  explicit output(meter& m) : meter_(m) {}
  void add(std::string_view s) {
    meter_.make(s.size());
    text_.append(s);
  }
  void add(char32_t c) {
    meter_.make(1);
    append(text_, c);
  }
  std::string take() { return std::move(text_); }

private:
  meter& meter_;
  std::string text_;
};

using mapping = utf8proc_int32_t (*)(utf8proc_int32_t);

char32_t mapped(char32_t c, mapping map) { return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c))); }

std::string mapped(meter& m, std::string_view s, mapping map) {
  output out(m);
  walk(m, s, [&](char32_t c, auto, auto) {
    out.add(mapped(c, map));
    return true;
  });
  return out.take();
}

/// The capital, which of one letter in wide use is two.
void add_upper(output& out, char32_t c) {
  if (c == U'ß')
    out.add("SS");
  else
    out.add(mapped(c, utf8proc_toupper));
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

} // namespace

// -- code points --------------------------------------------------------------

char32_t decode(std::string_view s, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const auto first = byte(at);
  const std::size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (size == 1 || at + size > s.size())
    return byte(at++);
  char32_t c = first & (0x7F >> size);
  for (std::size_t i = 1; i < size; ++i)
    c = c << 6 | (byte(at + i) & 0x3F);
  at += size;
  return c;
}

void append(std::string& out, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

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
  return decode(s.substr(0, end), at);
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

// -- case ---------------------------------------------------------------------

std::string lower(meter& m, std::string_view s) { return mapped(m, s, utf8proc_tolower); }

std::string upper(meter& m, std::string_view s) {
  output out(m);
  walk(m, s, [&](char32_t c, auto, auto) {
    add_upper(out, c);
    return true;
  });
  return out.take();
}

std::string capitalize(meter& m, std::string_view s) {
  std::size_t at = 0;
  if (s.empty())
    return {};
  decode(s, at);
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
  return out.take();
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
  return out.take();
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
  return out.take();
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

// -- finding ------------------------------------------------------------------

std::size_t find(meter& m, std::string_view s, std::string_view part, std::size_t from) {
  if (from > s.size() || part.size() > s.size() - from)
    return s.npos;
  // memmem() is linear for every pair of texts, std::string::find is not. A window ends where no match in it can begin.
  const auto window = std::max(meter::part, part.size()) + part.size();
  m.spend(part.size());
  for (auto at = from; at + part.size() <= s.size(); at += window - part.size() + 1) {
    const auto some = s.substr(at, window);
    const auto* const hit = static_cast<const char*>(memmem(some.data(), some.size(), part.data(), part.size()));
    m.spend(8 + step * (hit ? static_cast<std::size_t>(hit - some.data()) : some.size()) + part.size());
    if (hit)
      return static_cast<std::size_t>(hit - s.data());
  }
  return s.npos;
}

namespace {

std::string backwards(meter& m, std::string_view s) {
  m.make(s.size());
  return {s.rbegin(), s.rend()};
}

} // namespace

std::size_t find_last(meter& m, std::string_view s, std::string_view part) {
  const auto found = find(m, backwards(m, s), backwards(m, part));
  return found == s.npos ? found : s.size() - found - part.size();
}

std::size_t count(meter& m, std::string_view s, std::string_view part) {
  if (part.empty())
    return length(m, s) + 1;
  std::size_t n = 0;
  for (auto at = find(m, s, part); at != s.npos; at = find(m, s, part, at + part.size()))
    ++n;
  return n;
}

// -- cutting ------------------------------------------------------------------

std::string_view strip(meter& m, std::string_view s, std::string_view chars, bool left, bool right) {
  const auto cut = [&](char32_t c) {
    m.spend(step + chars.size());
    if (chars.empty())
      return is_space(c);
    for (std::size_t at = 0; at < chars.size();)
      if (decode(chars, at) == c)
        return true;
    return false;
  };
  while (left && !s.empty()) {
    std::size_t at = 0;
    if (!cut(decode(s, at)))
      break;
    s.remove_prefix(at);
  }
  while (right && !s.empty()) {
    std::size_t begin = 0;
    if (!cut(last(s, s.size(), begin)))
      break;
    s = s.substr(0, begin);
  }
  return s;
}

std::string replace(meter& m, std::string_view s, std::string_view from, std::string_view to, long long limit) {
  output out(m);
  std::size_t at = 0;
  while (limit != 0) {
    const auto found = from.empty() ? at : find(m, s, from, at);
    if (found == s.npos || found > s.size())
      break;
    m.spend(step);
    out.add(s.substr(at, found - at));
    out.add(to);
    at = found + from.size();
    --limit;
    if (from.empty()) {
      if (at >= s.size())
        return out.take();
      const auto begin = at;
      decode(s, at);
      out.add(s.substr(begin, at - begin));
    }
  }
  out.add(s.substr(std::min(at, s.size())));
  return out.take();
}

namespace {

/// Parts of a text, charged.
class parts {
public:
  explicit parts(meter& m) : meter_(m) {}
  void add(std::string_view part) {
    meter_.make(2 * sizeof part);
    all_.push_back(part);
  }
  std::vector<std::string_view> take() { return std::move(all_); }
  std::vector<std::string_view> take_reversed() {
    std::reverse(all_.begin(), all_.end());
    return std::move(all_);
  }

private:
  meter& meter_;
  std::vector<std::string_view> all_;
};

} // namespace

std::vector<std::string_view> split(meter& m, std::string_view s, std::string_view separator, long long limit) {
  parts found(m);
  if (!separator.empty()) {
    std::size_t begin = 0;
    for (; limit != 0; --limit) {
      const auto at = find(m, s, separator, begin);
      if (at == s.npos)
        break;
      found.add(s.substr(begin, at - begin));
      begin = at + separator.size();
    }
    found.add(s.substr(begin));
    return found.take();
  }
  for (s = strip(m, s, {}, true, false); !s.empty(); s = strip(m, s, {}, true, false)) {
    if (limit-- == 0) {
      found.add(s);
      break;
    }
    std::size_t end = s.size();
    walk(m, s, [&](char32_t c, std::size_t begin, auto) {
      if (is_space(c))
        end = begin;
      return end == s.size();
    });
    found.add(s.substr(0, end));
    s.remove_prefix(end);
  }
  return found.take();
}

std::vector<std::string_view> split_right(meter& m, std::string_view s, std::string_view separator, long long limit) {
  parts found(m);
  if (!separator.empty()) {
    const auto from_behind = backwards(m, s), looked_for = backwards(m, separator);
    std::size_t begin = 0; // in the text from behind
    for (; limit != 0; --limit) {
      const auto at = find(m, from_behind, looked_for, begin);
      if (at == s.npos)
        break;
      found.add(s.substr(s.size() - at, at - begin));
      begin = at + separator.size();
    }
    found.add(s.substr(0, s.size() - begin));
    return found.take_reversed();
  }
  for (s = strip(m, s, {}, false, true); !s.empty(); s = strip(m, s, {}, false, true)) {
    if (limit-- == 0) {
      found.add(s);
      break;
    }
    auto begin = s.size();
    for (std::size_t at = s.size(); at > 0 && !is_space(last(s, at, at));) {
      m.spend(step);
      begin = at;
    }
    found.add(s.substr(begin));
    s = s.substr(0, begin);
  }
  return found.take_reversed();
}

std::vector<std::string_view> split_lines(meter& m, std::string_view s, bool keep_ends) {
  parts lines(m);
  std::size_t line = 0;
  bool pair = false; // a line feed that belongs to the carriage return before it
  walk(m, s, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (std::exchange(pair, false))
      return true;
    if (!is_line_end(c))
      return true;
    pair = c == '\r' && end < s.size() && s[end] == '\n';
    end += pair ? 1 : 0;
    lines.add(s.substr(line, (keep_ends ? end : begin) - line));
    line = end;
    return true;
  });
  if (line < s.size())
    lines.add(s.substr(line));
  return lines.take();
}

// -- spelling -----------------------------------------------------------------

std::string repr(double d) {
  if (std::isnan(d))
    return "nan";
  if (std::isinf(d))
    return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  std::string_view all(buffer, static_cast<std::size_t>(end - buffer));
  std::string sign = all.front() == '-' ? "-" : "";
  all.remove_prefix(sign.size());
  const auto e = all.find('e');
  int exponent = 0;
  const auto digits_of_exponent = all[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(all.data() + digits_of_exponent, all.data() + all.size(), exponent);
  std::string digits(1, all[0]);
  if (e > 2)
    digits.append(all.substr(2, e - 2));
  if (exponent < -4 || exponent >= 16) {
    auto mantissa = digits.size() > 1 ? digits.substr(0, 1) + '.' + digits.substr(1) : digits;
    const auto magnitude = std::to_string(std::abs(exponent));
    return sign + mantissa + (exponent < 0 ? "e-" : "e+") + (magnitude.size() < 2 ? "0" : "") + magnitude;
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole)
    return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + '.' + digits.substr(whole);
}

namespace {

template <class... Ts>
void append_format(output& out, const char* format, Ts... args) {
  char buffer[16];
  out.add(std::string_view(buffer, static_cast<std::size_t>(std::snprintf(buffer, sizeof buffer, format, args...))));
}

} // namespace

std::string repr(meter& m, std::string_view s) {
  const bool single = find(m, s, "'") != s.npos, twofold = find(m, s, "\"") != s.npos;
  const char32_t quote = single && !twofold ? '"' : '\'';
  output out(m);
  out.add(quote);
  walk(m, s, [&](char32_t c, auto, auto) {
    if (c == quote || c == '\\') {
      out.add(U'\\');
      out.add(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out.add(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (is_printable(c)) {
      out.add(c);
    } else {
      append_format(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", static_cast<unsigned>(c));
    }
    return true;
  });
  out.add(quote);
  return out.take();
}

std::string json(meter& m, std::string_view s, bool ensure_ascii) {
  output out(m);
  out.add("\"");
  walk(m, s, [&](char32_t c, auto, auto) {
    switch (c) {
      case '"': out.add("\\\""); break;
      case '\\': out.add("\\\\"); break;
      case '\n': out.add("\\n"); break;
      case '\r': out.add("\\r"); break;
      case '\t': out.add("\\t"); break;
      case '\b': out.add("\\b"); break;
      case '\f': out.add("\\f"); break;
      default:
        if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000))
          append_format(out, "\\u%04x", static_cast<unsigned>(c));
        else if (ensure_ascii && c >= 0x10000)
          append_format(out, "\\u%04x\\u%04x", static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10)),
                        static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FF)));
        else
          out.add(c);
    }
    return true;
  });
  out.add("\"");
  return out.take();
}

std::string escape_html(meter& m, std::string_view s) {
  output out(m);
  walk(m, s, [&](char32_t c, std::size_t begin, std::size_t end) {
    switch (c) {
      case '&': out.add("&amp;"); break;
      case '<': out.add("&lt;"); break;
      case '>': out.add("&gt;"); break;
      case '\'': out.add("&#39;"); break;
      case '"': out.add("&#34;"); break;
      default: out.add(s.substr(begin, end - begin));
    }
    return true;
  });
  return out.take();
}

std::string pad(meter& m, std::string_view s, std::size_t width, char align, std::string_view fill) {
  const auto size = length(m, s);
  m.make(s.size());
  if (size >= width)
    return std::string(s);
  const auto room = width - size;
  m.make(std::min(room, std::size_t{1} << 40) * fill.size());
  const auto left = align == '<' ? 0 : align == '>' ? room : room / 2 + (room & width & 1);
  std::string out;
  for (std::size_t i = 0; i < left; ++i)
    out += fill;
  out += s;
  for (std::size_t i = left; i < room; ++i)
    out += fill;
  return out;
}

} // namespace troupe::jinja::text
