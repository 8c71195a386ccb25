// Functions that several readers of a response's fields use. Pure; any thread.
#pragma once

#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/json/json_digits.hpp"

#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// Throws failure(unsupported): "`path` <why>".
[[noreturn]] inline void unsupported_value(const std::string& path, const std::string& why) {
  refuse_field(path, "" + why, errc::unsupported);
}

/// "input[3]".
inline std::string item_path(std::string_view list, std::size_t number) {
  return std::string(list) + '[' + std::to_string(number) + ']';
}

/// Throws failure if there is no such text.
inline std::string_view needed_text(const field_reader& of, std::string_view key) {
  const auto text = of.text(key);
  if (!text)
    of.refuse(key, "is required");
  return *text;
}

/// The member as JSON, or `fallback` if it is absent or null.
inline std::string given_or(const field_reader& of, std::string_view key, std::string fallback) {
  const auto found = of.find(key);
  return found ? json::minified(*found) : std::move(fallback);
}

} // namespace troupe
