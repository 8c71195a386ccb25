// Kinds of characters, finer than alphabets (lexer.hpp). A node of a tree of tokens knows the kinds behind it and its
// longest text. A state knows the kinds whose characters make no difference to it. If the node's kinds are among the
// state's, all tokens behind the node are decided at once.
#pragma once

#include "runtime/guide/regex/byte_set.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::guides {

using character_kinds = std::uint32_t; // one bit each

namespace of_kinds {

constexpr byte_set bytes_of(std::string_view characters) {
  byte_set s;
  for (const char c : characters)
    s.add(static_cast<unsigned char>(c));
  return s;
}
inline constexpr auto line_ends = bytes_of("\n\r");

} // namespace of_kinds

/// The kinds of ASCII, by their bits: what patterns tend to tell apart.
inline constexpr std::array ascii_kinds{
  byte_set::range('a', 'f'),
  byte_set::range('g', 'z'),
  byte_set::range('A', 'F'),
  byte_set::range('G', 'Z'),
  byte_set::range('0', '9'),
  of_kinds::bytes_of("_"),
  of_kinds::bytes_of("-"),
  of_kinds::bytes_of("."),
  of_kinds::bytes_of(" "),
  of_kinds::bytes_of("/"),
  of_kinds::bytes_of(":"),
  of_kinds::bytes_of(","),
  of_kinds::bytes_of("@"),
  of_kinds::bytes_of("+*"),
  of_kinds::bytes_of("'"),
  of_kinds::bytes_of("()"),
  of_kinds::bytes_of("[]{}"),
  of_kinds::bytes_of("<>="),
  of_kinds::bytes_of("!?;"),
  of_kinds::bytes_of("#$%&"),
  of_kinds::bytes_of("^|~`\x7F"),
  of_kinds::bytes_of("\""),
  of_kinds::bytes_of("\\"),
  of_kinds::line_ends,
  byte_set::range(0, 0x1F) & ~of_kinds::line_ends,
};
static_assert([] {
  byte_set all;
  for (const auto& kind : ascii_kinds)
    all |= kind;
  return all;
}() == byte_set::range(0, 0x7F));

/// White space beyond ASCII, and the byte order mark, which patterns take for such: none of the kind below.
constexpr bool is_wide_space(char32_t c) {
  return c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
    c == 0x205F || c == 0x3000 || c == 0xFEFF;
}
/// The other well-formed characters beyond ASCII, or their beginnings.
inline constexpr character_kinds beyond_ascii = character_kinds(1) << ascii_kinds.size();
/// White space beyond ASCII, and bytes that are not UTF-8: never alike.
inline constexpr character_kinds other_kind = beyond_ascii << 1;
inline constexpr character_kinds all_kinds = other_kind * 2 - 1;

/// Characters by their bytes; empty: none.
struct utf8_sequences {
  byte_set first, second, third, fourth;
};

namespace of_kinds {

constexpr byte_set of(unsigned byte) { return byte_set::range(byte, byte); }
constexpr byte_set range(unsigned low, unsigned high) { return byte_set::range(low, high); }
inline constexpr auto any = range(0x80, 0xBF); // that continues a character

// The well-formed sequences beyond ASCII are Unicode's table 3-7.
inline constexpr std::array plain{
  utf8_sequences{range(0xC2, 0xDF), any, {}, {}},
  utf8_sequences{of(0xE0), range(0xA0, 0xBF), any, {}},
  utf8_sequences{of(0xE1) | range(0xE3, 0xEC) | range(0xEE, 0xEF), any, any, {}},
  utf8_sequences{of(0xE2), of(0x80), range(0x80, 0xA7) | range(0xAA, 0xBF), {}},
  utf8_sequences{of(0xE2), range(0x81, 0xBF), any, {}},
  utf8_sequences{of(0xED), range(0x80, 0x9F), any, {}},
  utf8_sequences{of(0xF0), range(0x90, 0xBF), any, any},
  utf8_sequences{range(0xF1, 0xF3), any, any, any},
  utf8_sequences{of(0xF4), range(0x80, 0x8F), any, any},
};
inline constexpr std::array beyond_ascii{
  utf8_sequences{of(0xC2), range(0x80, 0x9F) | range(0xA1, 0xBF), {}, {}},
  utf8_sequences{range(0xC3, 0xDF), any, {}, {}},
  utf8_sequences{of(0xE0), range(0xA0, 0xBF), any, {}},
  utf8_sequences{of(0xE1), of(0x9A), range(0x81, 0xBF), {}},
  utf8_sequences{of(0xE1), range(0x80, 0x99) | range(0x9B, 0xBF), any, {}},
  utf8_sequences{of(0xE2), of(0x80), range(0x8B, 0xA7) | range(0xAA, 0xAE) | range(0xB0, 0xBF), {}},
  utf8_sequences{of(0xE2), of(0x81), range(0x80, 0x9E) | range(0xA0, 0xBF), {}},
  utf8_sequences{of(0xE2), range(0x82, 0xBF), any, {}},
  utf8_sequences{of(0xE3), of(0x80), range(0x81, 0xBF), {}},
  utf8_sequences{of(0xE3), range(0x81, 0xBF), any, {}},
  utf8_sequences{range(0xE4, 0xEC) | of(0xEE), any, any, {}},
  utf8_sequences{of(0xED), range(0x80, 0x9F), any, {}},
  utf8_sequences{of(0xEF), of(0xBB), range(0x80, 0xBE), {}},
  utf8_sequences{of(0xEF), range(0x80, 0xBA) | range(0xBC, 0xBF), any, {}},
  utf8_sequences{of(0xF0), range(0x90, 0xBF), any, any},
  utf8_sequences{range(0xF1, 0xF3), any, any, any},
  utf8_sequences{of(0xF4), range(0x80, 0x8F), any, any},
};

} // namespace of_kinds

/// All beyond ASCII except U+2028 and U+2029.
inline constexpr const auto& plain_sequences = of_kinds::plain;
/// The sequences of the kind beyond_ascii.
inline constexpr const auto& beyond_ascii_sequences = of_kinds::beyond_ascii;

constexpr character_kinds kind_of(unsigned char ascii) {
  character_kinds kind = 1;
  for (std::size_t k = 0; k < ascii_kinds.size() && !ascii_kinds[k].has(ascii); ++k)
    kind <<= 1;
  return kind;
}

/// The bytes by which it is found what most characters do: a state leads somewhere by the first of them that is alive.
inline constexpr std::array<unsigned char, 2> usual_bytes{'z', 'Z'};

/// Texts of characters of some kinds, at most so many of them.
class text_bounds {
public:
  static constexpr std::uint32_t any_length = 31; // that many or more

  constexpr text_bounds() = default;
  constexpr text_bounds(character_kinds kinds, std::uint32_t length)
    : packed_(kinds | std::min(length, any_length) << shift) {}

  constexpr character_kinds kinds() const { return packed_ & all_kinds; }
  constexpr std::uint32_t length() const { return packed_ >> shift; }
  constexpr bool within(text_bounds o) const { return (kinds() & ~o.kinds()) == 0 && length() <= o.length(); }
  /// Both these texts and those.
  constexpr text_bounds& operator|=(text_bounds o) {
    return *this = {kinds() | o.kinds(), std::max(length(), o.length())};
  }

private:
  static constexpr int shift = 27;
  static_assert(all_kinds < std::uint32_t(1) << shift);
  std::uint32_t packed_ = 0;
};

} // namespace troupe::guides
