// Python's str on UTF-8: code points, whitespace, case rules, and the spelling of floats and literals. Pure functions,
// used by the values, methods and filters of templates. Functions that walk through a text charge a meter for the walk
// and for the text they return.
#pragma once

#include "runtime/chat/jinja/meter.hpp"
#include "runtime/support/text/utf8.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::jinja::text {

/// Code points in `s`.
std::size_t length(meter& m, std::string_view s);
/// The byte offset of code point `index`, or the end of `s`.
std::size_t offset(meter& m, std::string_view s, std::size_t index);
/// The code point that ends right before byte `end`; sets `begin` to its start.
char32_t last(std::string_view s, std::size_t end, std::size_t& begin);

bool is_space(char32_t c);
bool is_line_end(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_numeric(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_printable(char32_t c);
bool is_identifier(char32_t c);
/// Whether `s` is not empty and every code point is in the class.
bool all(meter& m, std::string_view s, bool (*is)(char32_t));
/// str.islower / str.isupper: there are cased characters, and all have the case.
bool all_lower(meter& m, std::string_view s);
bool all_upper(meter& m, std::string_view s);

std::string lower(meter& m, std::string_view s);
std::string upper(meter& m, std::string_view s);
std::string capitalize(meter& m, std::string_view s);
/// str.title(): upper case behind what has no case, lower case elsewhere.
std::string title(meter& m, std::string_view s);
/// Runs of letters, digits and underscores.
std::size_t count_words(meter& m, std::string_view s);
/// The filter `title`: only white space, brackets and hyphens start a word.
std::string title_words(meter& m, std::string_view s);
std::string swap_case(meter& m, std::string_view s);
std::string reverse(meter& m, std::string_view s);

/// The first offset of `part` at `from` or later, and its last offset, or npos. Linear time for all inputs.
std::size_t find(meter& m, std::string_view s, std::string_view part, std::size_t from = 0);
std::size_t find_last(meter& m, std::string_view s, std::string_view part);
/// Non-overlapping occurrences.
std::size_t count(meter& m, std::string_view s, std::string_view part);

/// str.strip and its halves; `chars` empty means whitespace.
std::string_view strip(meter& m, std::string_view s, std::string_view chars, bool left, bool right);
std::string replace(meter& m, std::string_view s, std::string_view from, std::string_view to, long long limit);
/// str.split and str.rsplit; an empty `separator` means runs of whitespace, `limit` < 0 no limit.
std::vector<std::string_view> split(meter& m, std::string_view s, std::string_view separator, long long limit);
std::vector<std::string_view> split_right(meter& m, std::string_view s, std::string_view separator, long long limit);
std::vector<std::string_view> split_lines(meter& m, std::string_view s, bool keep_ends);

/// repr(float): the shortest digits that read back as `d`.
std::string repr(double d);
/// repr(str).
std::string repr(meter& m, std::string_view s);
/// A JSON string with its quotes.
std::string json(meter& m, std::string_view s, bool ensure_ascii);
/// &, <, >, ' and " as HTML entities.
std::string escape_html(meter& m, std::string_view s);
/// `s` padded to `width` code points. `align` is '<', '>' or '^', which places an odd one as str.center does.
std::string pad(meter& m, std::string_view s, std::size_t width, char align, std::string_view fill = " ");

} // namespace troupe::jinja::text
