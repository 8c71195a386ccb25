#include "runtime/jinja/text.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace troupe::jinja::text {

namespace {

std::string mapped(std::string_view s, utf8proc_int32_t (*map)(utf8proc_int32_t)) {
  std::string out;
  out.reserve(s.size());
  for (std::size_t at = 0; at < s.size();)
    append(out, static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(decode(s, at)))));
  return out;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

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

std::size_t length(std::string_view s) {
  return static_cast<std::size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::vector<std::string_view> characters(std::string_view s) {
  std::vector<std::string_view> result;
  for (std::size_t at = 0; at < s.size();) {
    const auto begin = at;
    decode(s, at);
    result.push_back(s.substr(begin, at - begin));
  }
  return result;
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
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680
         || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t c) {
  const auto k = category(c);
  return c == ' ' || (k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS);
}

bool is_identifier(char32_t c) {
  if (c < 0x80)
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_MC) || k == UTF8PROC_CATEGORY_ND
         || k == UTF8PROC_CATEGORY_NL;
}

bool all(std::string_view s, bool (*is)(char32_t)) {
  for (std::size_t at = 0; at < s.size();)
    if (!is(decode(s, at)))
      return false;
  return !s.empty();
}

namespace {

bool all_cased(std::string_view s, bool (*wanted)(char32_t), bool (*unwanted)(char32_t)) {
  bool found = false;
  for (std::size_t at = 0; at < s.size();) {
    const auto c = decode(s, at);
    if (unwanted(c))
      return false;
    found |= wanted(c);
  }
  return found;
}

} // namespace

bool all_lower(std::string_view s) {
  return all_cased(s, is_lower, is_upper);
}

bool all_upper(std::string_view s) {
  return all_cased(s, is_upper, is_lower);
}

// -- case ---------------------------------------------------------------------

std::string lower(std::string_view s) {
  return mapped(s, utf8proc_tolower);
}

std::string upper(std::string_view s) {
  // The one letter in wide use whose capital is two.
  return mapped(replace(s, "ß", "SS", -1), utf8proc_toupper);
}

std::string capitalize(std::string_view s) {
  std::size_t at = 0;
  if (s.empty())
    return {};
  decode(s, at);
  return mapped(s.substr(0, at), utf8proc_totitle) + lower(s.substr(at));
}

std::string title(std::string_view s) {
  std::string out;
  bool inside = false;
  for (auto c : characters(s)) {
    std::size_t at = 0;
    out += inside ? lower(c) : mapped(c, utf8proc_totitle);
    inside = is_alpha(decode(c, at));
  }
  return out;
}

// -- cutting ------------------------------------------------------------------

std::string_view strip(std::string_view s, std::string_view chars, bool left, bool right) {
  const auto cut = [&](char32_t c) {
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

std::string replace(std::string_view s, std::string_view from, std::string_view to, long long limit) {
  std::string out;
  std::size_t at = 0;
  while (limit != 0) {
    const auto found = from.empty() ? at : s.find(from, at);
    if (found == s.npos || found > s.size())
      break;
    out.append(s, at, found - at).append(to);
    at = found + from.size();
    --limit;
    if (from.empty()) {
      if (at >= s.size())
        return out;
      const auto begin = at;
      decode(s, at);
      out.append(s, begin, at - begin);
    }
  }
  return at < s.size() ? out.append(s, at) : out;
}

std::vector<std::string_view> split(std::string_view s, std::string_view separator, long long limit) {
  std::vector<std::string_view> parts;
  if (!separator.empty()) {
    for (; limit != 0; --limit) {
      const auto found = s.find(separator);
      if (found == s.npos)
        break;
      parts.push_back(s.substr(0, found));
      s.remove_prefix(found + separator.size());
    }
    parts.push_back(s);
    return parts;
  }
  for (s = strip(s, {}, true, false); !s.empty(); s = strip(s, {}, true, false)) {
    if (limit-- == 0) {
      parts.push_back(s);
      break;
    }
    std::size_t end = 0;
    for (std::size_t at = 0; at < s.size() && !is_space(decode(s, at));)
      end = at;
    parts.push_back(s.substr(0, end));
    s.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> split_right(std::string_view s, std::string_view separator, long long limit) {
  std::vector<std::string_view> parts;
  if (!separator.empty()) {
    for (; limit != 0; --limit) {
      const auto found = s.rfind(separator);
      if (found == s.npos)
        break;
      parts.push_back(s.substr(found + separator.size()));
      s = s.substr(0, found);
    }
    parts.push_back(s);
  } else {
    for (s = strip(s, {}, false, true); !s.empty(); s = strip(s, {}, false, true)) {
      if (limit-- == 0) {
        parts.push_back(s);
        break;
      }
      auto begin = s.size();
      for (std::size_t at = s.size(); at > 0 && !is_space(last(s, at, at));)
        begin = at;
      parts.push_back(s.substr(begin));
      s = s.substr(0, begin);
    }
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view s, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < s.size();) {
    const auto end = at;
    const auto c = decode(s, at);
    if (!is_line_end(c))
      continue;
    if (c == '\r' && at < s.size() && s[at] == '\n')
      ++at;
    lines.push_back(s.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < s.size())
    lines.push_back(s.substr(begin));
  return lines;
}

std::size_t count(std::string_view s, std::string_view part) {
  if (part.empty())
    return length(s) + 1;
  std::size_t n = 0;
  for (auto at = s.find(part); at != s.npos; at = s.find(part, at + part.size()))
    ++n;
  return n;
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
void append_format(std::string& out, const char* format, Ts... args) {
  char buffer[16];
  out.append(buffer, static_cast<std::size_t>(std::snprintf(buffer, sizeof buffer, format, args...)));
}

} // namespace

std::string repr(std::string_view s) {
  const char quote = s.find('\'') != s.npos && s.find('"') == s.npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < s.size();) {
    const auto c = decode(s, at);
    if (c == static_cast<char32_t>(quote) || c == '\\')
      (out += '\\') += static_cast<char>(c);
    else if (c == '\n' || c == '\r' || c == '\t')
      (out += '\\') += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    else if (is_printable(c))
      append(out, c);
    else
      append_format(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", static_cast<unsigned>(c));
  }
  return out += quote;
}

std::string json(std::string_view s, bool ensure_ascii) {
  std::string out = "\"";
  for (std::size_t at = 0; at < s.size();) {
    const auto c = decode(s, at);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000))
          append_format(out, "\\u%04x", static_cast<unsigned>(c));
        else if (ensure_ascii && c >= 0x10000)
          append_format(out, "\\u%04x\\u%04x", static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10)),
                        static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FF)));
        else
          append(out, c);
    }
  }
  return out += '"';
}

std::string escape_html(std::string_view s) {
  std::string out;
  for (char c : s) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string pad(std::string_view s, std::size_t width, char align, std::string_view fill) {
  const auto size = length(s);
  if (size >= width)
    return std::string(s);
  const auto room = width - size;
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
