#include "runtime/support/utf8.hpp"

#include <simdjson.h>

#include <algorithm>

namespace troupe {

namespace {

/// The length of the character that starts at bytes[0], or minus the length of the invalid part there (the table of
/// well-formed sequences is Unicode's 3-7; a part is invalid up to the first byte that cannot continue it).
int measure(std::string_view bytes) {
  auto at = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u; };
  const auto first = at(0);
  if (first < 0x80)
    return 1;
  if (first < 0xc2 || first > 0xf4)
    return -1;
  const int length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  const auto low = first == 0xe0 ? 0xa0u : first == 0xf0 ? 0x90u : 0x80u;
  const auto high = first == 0xed ? 0x9fu : first == 0xf4 ? 0x8fu : 0xbfu;
  if (at(1) < low || at(1) > high)
    return -1;
  for (int i = 2; i < length; ++i)
    if ((at(i) & 0xc0) != 0x80)
      return -i;
  return length;
}

} // namespace

bool is_utf8(std::string_view bytes) { return simdjson::validate_utf8(bytes.data(), bytes.size()); }

std::string to_utf8(std::string_view bytes) {
  if (is_utf8(bytes))
    return std::string(bytes);
  std::string result;
  while (!bytes.empty()) {
    const int length = measure(bytes);
    if (length > 0)
      result += bytes.substr(0, static_cast<std::size_t>(length));
    else
      result += "\xef\xbf\xbd";
    bytes.remove_prefix(static_cast<std::size_t>(std::abs(length)));
  }
  return result;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

} // namespace troupe
