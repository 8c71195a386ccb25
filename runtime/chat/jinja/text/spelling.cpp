// Literals: repr(), JSON strings, HTML escapes and padding.
#include "runtime/chat/jinja/text/walk.hpp"
#include "runtime/support/json/json_text.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace troupe::jinja::text {

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
  return out.str();
}

std::string json(meter& m, std::string_view s, bool ensure_ascii) {
  const auto escapes = ensure_ascii ? json_escapes::ascii : json_escapes::minimal;
  std::string out = "\"";
  while (!s.empty()) {
    auto size = std::min(s.size(), meter::part);
    while (size < s.size() && (s[size] & 0xC0) == 0x80)
      ++size;
    m.spend(step * size);
    const auto before = out.size();
    append_json_escaped(out, s.substr(0, size), escapes);
    m.make(out.size() - before);
    s.remove_prefix(size);
  }
  m.make(2);
  return out += '"';
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
  return out.str();
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
