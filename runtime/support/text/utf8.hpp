// The one place that knows well-formed UTF-8: validation, replacement of invalid parts, code points. Pure functions
// and small state machines for text that arrives in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

bool is_utf8(std::string_view bytes);

/// `bytes` with every maximal invalid part replaced by U+FFFD, as the WHATWG decoder does.
std::string to_utf8(std::string_view bytes);

/// Code points of valid UTF-8.
std::size_t count_characters(std::string_view text);

/// The code point that starts at `text[pos]` of valid UTF-8; advances `pos` past it.
char32_t next_char(std::string_view text, std::size_t& pos);
void append_char(std::string& out, char32_t c);

/// Follows UTF-8 byte by byte (the table of well-formed sequences is Unicode's 3-7). After `incomplete`, a character is
/// open; `invalid` ends an open one, and the byte may then start the next.
class utf8_state {
public:
  enum class step : std::uint8_t { complete, incomplete, invalid };

  step advance(unsigned char byte);
  bool between_characters() const { return missing_ == 0; }

private:
  int missing_ = 0;
  unsigned char low_ = 0x80, high_ = 0xBF; // range of the next continuation byte
};

/// Turns bytes that arrive in pieces into UTF-8: an unfinished character is held back, U+FFFD replaces each maximal
/// invalid part.
class lossy_utf8 {
public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);

private:
  utf8_state state_;
  std::string pending_;
};

} // namespace troupe
