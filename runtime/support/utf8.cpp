#include "runtime/support/utf8.hpp"

#include <simdjson.h>

#include <algorithm>

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
