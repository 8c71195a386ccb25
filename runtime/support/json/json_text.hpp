// Writes the leaves of JSON: strings, numbers and lists of ids. Objects are put together by hand around them, because
// an event of the hot path is mostly the same text every time. Pure functions.
#pragma once

#include "runtime/support/types.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Which characters of a JSON string are escaped beside quotes, backslashes and control characters.
enum class json_escapes : std::uint8_t {
  minimal, // none
  ascii,   // whatever is not printable ASCII, as \uXXXX (pairs of surrogates above U+FFFF)
};

/// `text` (valid UTF-8) as a JSON string, quotes included.
std::string json_text(std::string_view text, json_escapes escapes = json_escapes::minimal);

/// Appends the same without the quotes. `text` may be a part of a string, cut between characters.
void append_json_escaped(std::string& out, std::string_view text, json_escapes escapes = json_escapes::minimal);

/// The shortest digits that read back as `value`, for measurements; 0 for NaN and infinity, which JSON lacks.
std::string json_number(double value);

/// "[1,2,3]"
std::string json_ids(std::span<const token_id> ids);

} // namespace troupe
