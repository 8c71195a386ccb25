// Numbers for people and for JSON, whatever the locale.
#pragma once

#include <charconv>
#include <string>

namespace troupe {

/// The shortest digits that read back as the same number of this type: "0.05", not "0.050000".
template <class T>
std::string shortest_digits(T value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

} // namespace troupe
