#include "runtime/support/text/utf8.hpp"

#include "runtime/support/text/simdjson.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace troupe {

bool is_utf8(std::string_view bytes) { return simdjson::validate_utf8(bytes.data(), bytes.size()); }

std::string to_utf8(std::string_view bytes) {
  if (is_utf8(bytes))
    return std::string(bytes);
  std::string result;
  lossy_utf8 converter;
  converter.push(bytes, result);
  converter.finish(result);
  return result;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

char32_t next_char(std::string_view text, std::size_t& pos) {
  const unsigned char lead = static_cast<unsigned char>(text[pos++]);
  const std::size_t more = lead < 0xC0 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  if (more == 0)
    return lead;
  char32_t c = lead & (0x3Fu >> more);
  for (const auto end = std::min(text.size(), pos + more); pos < end; ++pos)
    c = (c << 6) | (static_cast<unsigned char>(text[pos]) & 0x3Fu);
  return c;
}

void append_char(std::string& out, char32_t c) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(n));
}

utf8_state::step utf8_state::advance(unsigned char byte) {
  if (missing_ > 0) {
    const bool fits = byte >= low_ && byte <= high_;
    low_ = 0x80;
    high_ = 0xBF;
    missing_ = fits ? missing_ - 1 : 0;
    if (!fits)
      return step::invalid;
    return missing_ == 0 ? step::complete : step::incomplete;
  }
  if (byte < 0x80)
    return step::complete;
  if (byte < 0xC2 || byte > 0xF4)
    return step::invalid;
  missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  switch (byte) {
    case 0xE0: low_ = 0xA0; break;  // overlong
    case 0xED: high_ = 0x9F; break; // surrogates
    case 0xF0: low_ = 0x90; break;  // overlong
    case 0xF4: high_ = 0x8F; break; // beyond U+10FFFF
    default: break;
  }
  return step::incomplete;
}

void lossy_utf8::push(std::string_view bytes, std::string& out) {
  for (std::size_t i = 0; i < bytes.size();) {
    const bool first = state_.between_characters();
    switch (state_.advance(static_cast<unsigned char>(bytes[i]))) {
      case utf8_state::step::complete:
        out += pending_;
        out += bytes[i++];
        pending_.clear();
        break;
      case utf8_state::step::incomplete: pending_ += bytes[i++]; break;
      case utf8_state::step::invalid:
        out += replacement_character;
        pending_.clear();
        i += first; // otherwise the byte is looked at again, as the start of a character
        break;
    }
  }
}

void lossy_utf8::finish(std::string& out) {
  if (!pending_.empty())
    out += replacement_character;
  pending_.clear();
  state_ = {};
}

} // namespace troupe
