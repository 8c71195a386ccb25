// Unicode for tokenizers: the characters of UTF-8, the character classes that tokenizers split at (as Rust's char and
// regex crate define them), and normal forms. Pure functions over utf8proc's tables.
#pragma once

#include "runtime/support/text/utf8.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::tokenization {

bool is_ascii(std::string_view text);

using troupe::append_char;
using troupe::next_char;

/// The character that ends before `text[pos]`; moves `pos` to its start.
char32_t previous_char(std::string_view text, std::size_t& pos);

bool is_whitespace(char32_t c);  // White_Space
bool is_word(char32_t c);        // \w of UTS 18: Alphabetic, M, Nd, Pc, Join_Control
bool is_numeric(char32_t c);     // N
bool is_punctuation(char32_t c); // P, and all ASCII symbols
bool is_mark(char32_t c);        // M
bool is_nonspacing(char32_t c);  // Mn
bool is_other(char32_t c);       // Cc, Cf, Co: neither printed nor space, but for control characters such as tabs
bool is_chinese(char32_t c);     // ideographs, as BERT's tokenizers set them apart

/// The end of the extended grapheme cluster that starts at `begin`, which is less than the text's size.
std::size_t grapheme_end(std::string_view text, std::size_t begin);

enum class normal_form : std::uint8_t { nfc, nfd, nfkc, nfkd };
/// O(n log n) even for long runs of combining marks.
std::string normalize(std::string_view text, normal_form form);
/// Character by character, without context (final sigma).
std::string lowercase(std::string_view text);

} // namespace troupe::tokenization
