// Unicode for tokenizers: UTF-8 in steps, the character classes that tokenizers split at (as Rust's char and regex
// crate define them), and normal forms. Pure functions over utf8proc's tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::tokenization {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

/// Recognises UTF-8 byte by byte (Unicode 15, table 3-7: no overlong forms, no surrogates).
class utf8_state {
public:
  enum class step : std::uint8_t {
    complete,   // the byte ends a character
    incomplete, // the character needs more bytes
    invalid,    // no character continues like this; the state is reset, and the byte itself not consumed
                // unless between_characters() held before
  };
  step advance(unsigned char byte);
  bool between_characters() const { return missing_ == 0; }

private:
  int missing_ = 0;
  unsigned char low_ = 0x80; // bounds of the next continuation byte
  unsigned char high_ = 0xBF;
};

/// Bytes to UTF-8 with U+FFFD for each maximal invalid part (as Rust's String::from_utf8_lossy), in any number of
/// calls.
class lossy_utf8 {
public:
  /// Appends to `out` all that is certain.
  void push(std::string_view bytes, std::string& out);
  /// Appends U+FFFD if the bytes ended within a character.
  void finish(std::string& out);

private:
  utf8_state state_;
  std::string pending_; // the bytes of an unfinished character
};

bool is_utf8(std::string_view text);
bool is_ascii(std::string_view text);

/// The character that starts at `text[pos]` of valid UTF-8; advances `pos` past it.
char32_t next_char(std::string_view text, std::size_t& pos);
/// The character that ends before `text[pos]`; moves `pos` to its start.
char32_t previous_char(std::string_view text, std::size_t& pos);
void append_char(std::string& out, char32_t c);

bool is_whitespace(char32_t c);  // White_Space
bool is_word(char32_t c);        // \w of UTS 18: Alphabetic, M, Nd, Pc, Join_Control
bool is_numeric(char32_t c);     // N
bool is_punctuation(char32_t c); // P, and all ASCII symbols

enum class normal_form : std::uint8_t { nfc, nfd, nfkc, nfkd };
/// O(n log n) even for long runs of combining marks.
std::string normalize(std::string_view text, normal_form form);
/// Character by character, without context (final sigma).
std::string lowercase(std::string_view text);

} // namespace troupe::tokenization
