#include "runtime/guide/regex/code_points.hpp"

#include "runtime/support/text/utf8.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace troupe::guides {

// -- sets ---------------------------------------------------------------------

void code_points::tidy() {
  meter::charge(4 * ranges_.size());
  std::ranges::sort(ranges_, {}, &range::low);
  std::size_t kept = 0;
  for (const auto& r : ranges_)
    if (kept > 0 && r.low <= ranges_[kept - 1].high + 1)
      ranges_[kept - 1].high = std::max(ranges_[kept - 1].high, r.high);
    else
      ranges_[kept++] = r;
  ranges_.resize(kept);
}

code_points code_points::complement() const {
  code_points result;
  char32_t next = 0;
  for (const auto& r : ranges_) {
    if (r.low > next)
      result.ranges_.push_back({next, r.low - 1});
    next = r.high + 1;
  }
  if (next <= 0x10FFFF)
    result.ranges_.push_back({next, 0x10FFFF});
  return result;
}

code_points code_points::both_cases() const {
  auto result = *this;
  for (const auto& r : ranges_) {
    meter::charge(2 * (r.high - r.low + 1));
    for (auto c = r.low; c <= r.high; ++c) {
      const auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
      const auto upper = static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
      if (lower != c)
        result.ranges_.push_back({lower, lower});
      if (upper != c)
        result.ranges_.push_back({upper, upper});
    }
  }
  result.tidy();
  return result;
}

code_points code_points::category(std::string_view name) {
  meter::charge(3 * 0x110000);
  code_points result;
  for (utf8proc_int32_t c = 0; c <= 0x10FFFF; ++c)
    if (std::string_view(utf8proc_category_string(c)).starts_with(name)) {
      const auto p = static_cast<char32_t>(c);
      if (!result.ranges_.empty() && result.ranges_.back().high + 1 == p)
        result.ranges_.back().high = p;
      else
        result.ranges_.push_back({p, p});
    }
  return result;
}

// -- UTF-8 ----------------------------------------------------------------------

namespace {

// Inside JSON's strings.
const code_points raw{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
const code_points escapable{{0, 0x1F}, {'"', '"'}, {'/', '/'}, {'\\', '\\'}};

expression range_of(expressions& regex, unsigned low, unsigned high) { return regex.bytes(byte_set::range(low, high)); }

/// The characters [low, high], whose encodings have the same length, by their bytes from `at`.
expression same_length(expressions& regex, std::span<const unsigned char> low, std::span<const unsigned char> high) {
  if (low.size() == 1)
    return range_of(regex, low[0], high[0]);
  const auto rest = [](std::span<const unsigned char> s) { return s.subspan(1); };
  if (low[0] == high[0])
    return regex.concat(range_of(regex, low[0], low[0]), same_length(regex, rest(low), rest(high)));
  const std::array<unsigned char, 3> least{0x80, 0x80, 0x80}, most{0xBF, 0xBF, 0xBF};
  const auto below = std::span(least).first(low.size() - 1);
  const auto above = std::span(most).first(low.size() - 1);
  std::vector<expression> parts;
  unsigned first = low[0], last = high[0];
  if (!std::ranges::equal(rest(low), below)) {
    parts.push_back(regex.concat(range_of(regex, first, first), same_length(regex, rest(low), above)));
    ++first;
  }
  if (!std::ranges::equal(rest(high), above)) {
    parts.push_back(regex.concat(range_of(regex, last, last), same_length(regex, below, rest(high))));
    --last;
  }
  if (first <= last)
    parts.push_back(regex.concat(range_of(regex, first, last), same_length(regex, below, above)));
  return regex.alternation(std::move(parts));
}

expression utf8_of(expressions& regex, const code_points& set) {
  static constexpr code_points::range lengths[] = {
    {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
  std::vector<expression> parts;
  for (const auto& r : set.ranges())
    for (const auto& l : lengths) {
      const auto low = std::max(r.low, l.low), high = std::min(r.high, l.high);
      if (low > high)
        continue;
      std::string first, last;
      append_char(first, low);
      append_char(last, high);
      const auto bytes = [](const std::string& s) {
        return std::span(reinterpret_cast<const unsigned char*>(s.data()), s.size());
      };
      parts.push_back(same_length(regex, bytes(first), bytes(last)));
    }
  return regex.alternation(std::move(parts));
}

expression hex_digit(expressions& regex, unsigned digit) {
  constexpr std::string_view lower = "0123456789abcdef", upper = "0123456789ABCDEF";
  return regex.bytes(byte_set::of(static_cast<unsigned char>(lower[digit])) |
                     byte_set::of(static_cast<unsigned char>(upper[digit])));
}

expression hex_digits(expressions& regex, unsigned low, unsigned high) {
  std::vector<expression> parts;
  for (auto d = low; d <= high; ++d)
    parts.push_back(hex_digit(regex, d));
  return regex.alternation(std::move(parts));
}

/// The spellings of a character that must be escaped, or may be.
expression escaped(expressions& regex, char32_t c) {
  std::vector<expression> parts;
  constexpr std::string_view named = "\"\\/\b\f\n\r\t", names = "\"\\/bfnrt";
  if (c < 0x80)
    if (const auto i = named.find(static_cast<char>(c)); i != named.npos)
      parts.push_back(regex.literal(std::string("\\") + names[i]));
  if (c < 0x20)
    parts.push_back(regex.concat({regex.literal("\\u00"), hex_digit(regex, c >> 4), hex_digit(regex, c & 15)}));
  return regex.alternation(std::move(parts));
}

} // namespace

expression encoded(expressions& regex, const code_points& set, text_encoding how) {
  if (how == text_encoding::utf8)
    return utf8_of(regex, set);
  std::vector<expression> parts{utf8_of(regex, set.intersection(raw))};
  const auto special = set.intersection(escapable);
  for (const auto& r : special.ranges())
    for (auto c = r.low; c <= r.high; ++c)
      parts.push_back(escaped(regex, c));
  return regex.alternation(std::move(parts));
}

expression encoded(expressions& regex, std::string_view utf8, text_encoding how) {
  if (how == text_encoding::utf8)
    return regex.literal(utf8);
  std::vector<expression> parts;
  std::size_t raw = 0;
  const auto flush = [&](std::size_t to) {
    if (to > raw)
      parts.push_back(regex.literal(utf8.substr(raw, to - raw)));
    raw = to + 1;
  };
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c < 0x20 || c == '"' || c == '\\') {
      flush(i);
      parts.push_back(escaped(regex, c));
    } else if (c == '/') {
      flush(i);
      parts.push_back(regex.alternation(regex.literal("/"), escaped(regex, c)));
    }
  }
  flush(utf8.size());
  auto result = empty_text;
  for (auto i = parts.size(); i-- > 0;)
    result = regex.concat(parts[i], result);
  return result;
}

expression any_characters(expressions& regex, text_encoding how, std::uint32_t least, std::uint32_t most) {
  return regex.repeat(encoded(regex, code_points::all(), how), least, most);
}

expression any_characters(expressions& regex, text_encoding how) { return any_characters(regex, how, 0, unlimited); }

expression any_json_string(expressions& regex) {
  const auto hex = hex_digits(regex, 0, 15);
  const auto d = hex_digit(regex, 13);
  const auto unit = regex.alternation(
    {regex.concat({regex.alternation(hex_digits(regex, 0, 12), hex_digits(regex, 14, 15)), hex, hex, hex}),
     regex.concat({d, hex_digits(regex, 0, 7), hex, hex}),
     regex.concat(
       {d, hex_digits(regex, 8, 11), hex, hex, regex.literal("\\u"), d, hex_digits(regex, 12, 15), hex, hex})});
  constexpr std::string_view named = "\"\\/bfnrt";
  byte_set names;
  for (const auto c : named)
    names.add(static_cast<unsigned char>(c));
  const auto escape = regex.concat(regex.literal("\\"),
                                   regex.alternation(regex.bytes(names), regex.concat(regex.literal("u"), unit)));
  const auto raw = utf8_of(regex, {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}});
  const auto quote = regex.literal("\"");
  return regex.concat({quote, regex.star(regex.alternation(raw, escape)), quote});
}

} // namespace troupe::guides
