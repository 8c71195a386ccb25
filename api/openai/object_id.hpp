// Ids of objects that clients may ask for again or send back: unguessable. Any thread.
#pragma once

#include <random>
#include <string>
#include <string_view>

namespace troupe {

/// "resp_" and 48 random hexadecimal digits, for the prefix "resp_".
inline std::string object_id(std::string_view prefix) {
  thread_local std::random_device device;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result(prefix);
  for (int word = 0; word < 6; ++word) {
    auto bits = device();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4)
      result += digits[bits & 15];
  }
  return result;
}

} // namespace troupe
