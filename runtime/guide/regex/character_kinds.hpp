// Kinds of characters, finer than alphabets (lexer.hpp). What lies behind a node of a tree of tokens is bounded by the
// kinds that it has and its longest text; what may follow a state, by the kinds whose characters make no difference to
// it. Where the one is within the other, all of those tokens are decided at once.
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

/// Those of ASCII, by their bits: what patterns tend to tell apart.
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

/// Well-formed characters beyond ASCII, or their beginnings, except U+2028 and U+2029.
inline constexpr character_kinds beyond_ascii = character_kinds(1) << ascii_kinds.size();
/// Those two, and bytes that are not UTF-8: never alike.
inline constexpr character_kinds other_kind = beyond_ascii << 1;
inline constexpr character_kinds all_kinds = other_kind * 2 - 1;

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
