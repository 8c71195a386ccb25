// Regular expressions as people write them, after ECMAScript: parsed, and turned into `expressions`. Lookaheads are
// supported outside of repetitions; what is not regular (backreferences) or not supported (lookbehinds, word
// boundaries) is refused by name. `\d` and `\w` are ASCII's.
#pragma once

#include "runtime/guide/regex/code_points.hpp"

#include <string_view>

namespace troupe::guides {

/// The texts that match as a whole, in UTF-8. Throws failure(bad_request) with what is wrong and where.
expression whole_pattern(expressions& regex, std::string_view pattern);

/// The insides of JSON strings in which the pattern matches somewhere, as JSON Schema's `pattern`.
expression pattern_in_json_string(expressions& regex, std::string_view pattern);

/// The insides of JSON strings that match as a whole, for a pattern that the program itself brings.
expression whole_pattern_in_json_string(expressions& regex, std::string_view pattern);

} // namespace troupe::guides
