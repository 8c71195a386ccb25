// Breaks lines between words instead of at the edge of the terminal: of text that arrives in pieces (answers), and of
// whole texts (help). Widths are those of the characters on a terminal. No input or output.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::cli {

/// Takes the widths of characters from a UTF-8 locale, whatever the environment names. Call once, ahead of the others.
void use_utf8_locale();

/// Columns of the terminal that `descriptor` is; 0 if it is none or does not tell.
std::size_t columns_of(int descriptor);

/// Breaks a stream of text. Holds a word back until it is complete, for only then it is known whether it fits. Spaces
/// at which a line is broken, and those at the end of a line, are dropped; a word longer than a line is left to the
/// terminal.
class word_wrap {
public:
  /// What may be printed now that `text`, a whole number of UTF-8 characters, has arrived. `columns`: the terminal's
  /// width, which may change.
  std::string add(std::string_view text, std::size_t columns);

  /// The rest.
  std::string finish(std::size_t columns);

private:
  void end_word(std::string& out, std::size_t columns);
  /// Whether a character is a part of the one before: an accent, or a further part of an emoji.
  bool joins(char32_t c, std::size_t width);

  std::string spaces_, word_;                     // not printed yet
  std::size_t spaces_width_ = 0, word_width_ = 0; // of those
  std::size_t column_ = 0;                        // where the next character goes
  bool began_ = false;                            // the beginning of the word is on the screen
  bool joiner_ = false, half_flag_ = false;       // what the last character was
};

/// A whole text in lines of at most `columns`. The lines of a paragraph other than the first are indented by `indent`.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);

} // namespace troupe::cli
