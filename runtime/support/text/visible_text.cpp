#include "runtime/support/text/visible_text.hpp"

#include "runtime/support/text/hex.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

namespace {

bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }

bool overrides_direction(char32_t c) { return c == 0x202d || c == 0x202e; }

/// Whether a character is of Unicode's category Cf or breaks lines.
bool is_invisible(char32_t c) {
  constexpr auto ranges = std::to_array<std::pair<char32_t, char32_t>>({{0xad, 0xad},
                                                                        {0x61c, 0x61c},
                                                                        {0x180e, 0x180e},
                                                                        {0x200b, 0x200b}, // joiners follow
                                                                        {0x200e, 0x200f},
                                                                        {0x2028, 0x202e},
                                                                        {0x2060, 0x206f},
                                                                        {0xfeff, 0xfeff},
                                                                        {0xfff9, 0xfffb},
                                                                        {0xe0000, 0xe007f}});
  return std::ranges::any_of(ranges, [&](const auto& range) { return c >= range.first && c <= range.second; });
}

void append_escape(std::string& out, char32_t c) {
  if (c < 0x80) {
    append_hex(out += "\\x", static_cast<unsigned char>(c));
  } else if (c < 0x10000) {
    append_unicode_escape(out, static_cast<unsigned>(c));
  } else {
    out += "\\U";
    for (int shift = 24; shift >= 0; shift -= 8)
      append_hex(out, static_cast<unsigned char>(c >> shift & 0xff));
  }
}

/// Calls `whole(text, character)` with each character, and `broken(byte)` with each byte that belongs to none. Returns
/// how many bytes at the end are an unfinished character.
template <class Whole, class Broken>
std::size_t for_each_character(std::string_view bytes, Whole whole, Broken broken) {
  std::size_t begin = 0;
  utf8_state state;
  for (std::size_t at = 0; at < bytes.size();) {
    switch (state.advance(static_cast<unsigned char>(bytes[at]))) {
      case utf8_state::step::incomplete: ++at; break;
      case utf8_state::step::complete: {
        const auto text = bytes.substr(begin, ++at - begin);
        whole(text, next_char(bytes, begin));
        break;
      }
      case utf8_state::step::invalid: // this byte may begin another character
        at = std::max(at, begin + 1);
        for (; begin < at; ++begin)
          broken(static_cast<unsigned char>(bytes[begin]));
        break;
    }
  }
  return bytes.size() - begin;
}

} // namespace

void visible_text::push(std::string_view bytes, std::string& out) {
  const auto all = std::exchange(pending_, {}) + std::string(bytes);
  bool returned = false; // a carriage return, which may belong to a line break
  const auto flush = [&] { out += std::exchange(returned, false) ? "\\r" : ""; };
  const auto left = for_each_character(
    all,
    [&](std::string_view text, char32_t c) {
      returned = returned && c != '\n';
      flush();
      if (c == '\r')
        returned = true;
      else if (c == '\n' || c == '\t' || (strict_ ? may_be_in_name(c) : !is_control(c) && !overrides_direction(c)))
        out += text;
      else
        append_escape(out, c);
    },
    [&](unsigned char byte) {
      flush();
      append_hex(out += "\\x", byte);
    });
  pending_ = (returned ? "\r" : "") + all.substr(all.size() - left);
}

void visible_text::finish(std::string& out) {
  for (const unsigned char byte : std::exchange(pending_, {}))
    if (byte == '\r')
      out += "\\r";
    else
      append_hex(out += "\\x", byte);
}

std::string visible(std::string_view text, bool strict) {
  std::string out;
  visible_text pieces(strict);
  pieces.push(text, out);
  pieces.finish(out);
  return out;
}

bool may_be_in_name(char32_t c) { return !is_control(c) && !is_invisible(c); }

std::string visible_name(std::string_view name) {
  std::string out;
  const auto broken = [&](unsigned char byte) { append_hex(out += "\\x", byte); };
  const auto left = for_each_character(
    name,
    [&](std::string_view text, char32_t c) {
      if (c == '\n' || c == '\t' || c == '\\')
        (out += '\\') += c == '\n' ? 'n' : c == '\t' ? 't' : '\\';
      else if (!may_be_in_name(c))
        append_escape(out, c);
      else
        out += text;
    },
    broken);
  for (const unsigned char byte : name.substr(name.size() - left))
    broken(byte);
  return out;
}

} // namespace troupe
