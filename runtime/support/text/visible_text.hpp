// Makes text that others wrote safe to show: spells out characters that a terminal would act upon. This is the one
// place that knows which these are. Pure functions, and a state for text that arrives in pieces.
#pragma once

#include "runtime/support/text/utf8.hpp"

#include <string>
#include <string_view>

namespace troupe {

/// Text of several lines, in pieces that may end within a character. Line breaks and tabs stay; other control
/// characters, those of Latin-1 and overrides of the direction of text included, become "\x1b" or "\u202e", and so do
/// bytes that are no UTF-8.
class visible_text {
public:
  /// `strict`: whatever may not be in names is written out, too, but for line breaks, tabs and backslashes.
  explicit visible_text(bool strict = false) : strict_(strict) {}

  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);

private:
  bool strict_;
  std::string pending_; // an unfinished character, or a carriage return
};

/// Makes a whole text visible.
std::string visible(std::string_view text, bool strict = false);

/// Whether names may have this character as it is: it can be seen, is no control character, and leaves its neighbours
/// in their order.
bool may_be_in_name(char32_t c);

/// A name, or another text that is shown within a line: line breaks, tabs and backslashes are written out, too, and so
/// is whatever is invisible or reorders what stands beside it, but for the joiners that words and emoji are made with.
std::string visible_name(std::string_view name);

} // namespace troupe
