#include "runtime/support/text/base64.hpp"

#include <array>
#include <cstdint>

namespace troupe {

namespace {

constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr auto values_of_digits = [] {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < base64_digits.size(); ++i)
    values[static_cast<unsigned char>(base64_digits[i])] = static_cast<std::int8_t>(i);
  return values;
}();

} // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding)
    text.remove_suffix(1);
  if (text.size() % 4 == 1)
    return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const auto value = values_of_digits[static_cast<unsigned char>(c)];
    if (value < 0)
      return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xFF);
    }
  }
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? base64_digits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

} // namespace troupe
