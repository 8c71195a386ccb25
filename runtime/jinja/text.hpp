// Python's view of text over UTF-8: code points, its whitespace, its case rules, its spelling of floats and literals.
// Pure functions, used by the values, methods and filters of templates.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::jinja::text {

/// The code point at byte `at`, which moves past it.
char32_t decode(std::string_view s, std::size_t& at);
void append(std::string& out, char32_t c);
/// Code points in `s`.
std::size_t length(std::string_view s);
/// Every code point as a string of its own.
std::vector<std::string_view> characters(std::string_view s);
/// The code point that ends right before byte `end`.
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
/// True where `s` is not empty and every code point is in the class.
bool all(std::string_view s, bool (*is)(char32_t));
/// str.islower / str.isupper: something is cased, and all of it so.
bool all_lower(std::string_view s);
bool all_upper(std::string_view s);

std::string lower(std::string_view s);
std::string upper(std::string_view s);
std::string capitalize(std::string_view s);
/// str.title(): a letter after a non-letter is a capital, all others are small.
std::string title(std::string_view s);

/// str.strip and its halves; `chars` empty means whitespace.
std::string_view strip(std::string_view s, std::string_view chars, bool left, bool right);
std::string replace(std::string_view s, std::string_view from, std::string_view to, long long limit);
/// str.split and str.rsplit; an empty `separator` means runs of whitespace, `limit` < 0 means none.
std::vector<std::string_view> split(std::string_view s, std::string_view separator, long long limit);
std::vector<std::string_view> split_right(std::string_view s, std::string_view separator, long long limit);
std::vector<std::string_view> split_lines(std::string_view s, bool keep_ends);
/// Occurrences without overlap.
std::size_t count(std::string_view s, std::string_view part);

/// repr(float): the shortest digits that read back as `d`.
std::string repr(double d);
/// repr(str).
std::string repr(std::string_view s);
/// A JSON string with its quotes.
std::string json(std::string_view s, bool ensure_ascii);
/// &, <, >, ' and " as HTML entities.
std::string escape_html(std::string_view s);
/// `s` in a field of `width` code points: '<', '>' or '^' (which puts the odd one where str.center does).
std::string pad(std::string_view s, std::size_t width, char align, std::string_view fill = " ");

} // namespace troupe::jinja::text
