// Turns values in Python's notation into JSON. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// A string, a number, True, False, None, a list, a tuple or a dict of these; JSON's words and keys without quotes are
/// taken, too. `quote`: a mark that strings stand between, too, without escapes. Nothing if the text is something else.
std::optional<std::string> python_literal(std::string_view text, std::string_view quote = {});

/// What Python makes of the text between a string's quotes. A quote that should have been escaped stands for itself.
std::string python_string(std::string_view text);

} // namespace troupe
