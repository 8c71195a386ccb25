#include "runtime/tokenizer/unicode.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/meter.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

namespace troupe::tokenization {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; });
}

char32_t previous_char(std::string_view text, std::size_t& pos) {
  do
    --pos;
  while ((static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  std::size_t start = pos;
  return next_char(text, start);
}

bool is_whitespace(char32_t c) {
  if (c < 0x80)
    return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
    c == 0x202F || c == 0x205F || c == 0x3000;
}

static utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_word(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  // Join_Control, and the circled letters: all of Other_Alphabetic but marks.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
    (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_other(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
    (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
    (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::size_t grapheme_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  auto last = static_cast<utf8proc_int32_t>(next_char(text, end));
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    std::size_t after = end;
    const auto next = static_cast<utf8proc_int32_t>(next_char(text, after));
    if (utf8proc_grapheme_break_stateful(last, next, &state))
      break;
    last = next;
    end = after;
  }
  return end;
}

/// Whether nothing before `c` ever composes with it or with what follows it. Marks do, and two kinds of letters: vowels
/// and final consonants of Hangul, and vowels of Kirat Rai (Unicode 16).
static bool composes_forwards_only(char32_t c) {
  return c < 0x300 || (!is_mark(c) && !(c >= 0x1160 && c < 0x1200) && !(c >= 0x16D40 && c < 0x16D80));
}

/// Composes what is decomposed and in order, piece by piece, as utf8proc asks nobody in between.
static void compose(std::vector<utf8proc_int32_t>& chars) {
  constexpr std::ptrdiff_t least_piece = 1024;
  auto out = chars.begin();
  for (auto begin = chars.begin(); begin != chars.end();) {
    const auto end = std::find_if(begin + std::min(least_piece, chars.end() - begin), chars.end(),
                                  [](auto c) { return composes_forwards_only(static_cast<char32_t>(c)); });
    meter::charge(static_cast<std::uint64_t>(end - begin));
    const auto size = utf8proc_normalize_utf32(&*begin, end - begin,
                                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    out = std::copy(begin, begin + size, out);
    begin = end;
  }
  chars.erase(out, chars.end());
}

std::string normalize(std::string_view text, normal_form form) {
  const bool is_composed = form == normal_form::nfc || form == normal_form::nfkc;
  const bool compatible = form == normal_form::nfkc || form == normal_form::nfkd;
  if (is_ascii(text))
    return std::string(text);

  // utf8proc_map orders marks by swapping neighbours, which is quadratic in a run of marks.
  const auto decompose = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> chars;
  chars.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    meter::charge(1);
    const auto c = static_cast<utf8proc_int32_t>(next_char(text, pos));
    std::array<utf8proc_int32_t, 32> parts;
    int last_class = 0;
    const auto n = utf8proc_decompose_char(c, parts.data(), parts.size(), decompose, &last_class);
    if (n < 0 || n > static_cast<utf8proc_ssize_t>(parts.size()))
      throw failure(errc::internal, "a character decomposes into more than " + std::to_string(parts.size()));
    chars.insert(chars.end(), parts.begin(), parts.begin() + n);
  }
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (std::size_t i = 0; i < chars.size();) {
    meter::charge(1);
    if (combining_class(chars[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < chars.size() && combining_class(chars[end]) != 0)
      ++end;
    meter::charge(end - i);
    std::stable_sort(chars.begin() + static_cast<std::ptrdiff_t>(i), chars.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
  if (is_composed)
    compose(chars);
  std::string out;
  out.reserve(text.size());
  for (const auto c : chars) {
    meter::charge(1);
    append_char(out, static_cast<char32_t>(c));
  }
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    meter::charge(1);
    const char32_t c = next_char(text, pos);
    if (c < 0x80)
      out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    else if (c == 0x130) // the only character with a lower case of two
      out += "i\xCC\x87";
    else
      append_char(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

} // namespace troupe::tokenization
