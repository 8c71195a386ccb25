// Puts a JSON object together, member by member, for answers and for requests that are translated into others.
#pragma once

#include "runtime/support/json_digits.hpp"
#include "runtime/support/json_text.hpp"

#include <concepts>
#include <string>
#include <string_view>

namespace troupe {

class json_object {
public:
  /// A member whose value is JSON already.
  json_object& raw(std::string_view key, std::string_view value) {
    text_ += text_.size() > 1 ? "," : "";
    text_ += json_text(key);
    text_ += ':';
    text_ += value;
    return *this;
  }
  /// `value`: valid UTF-8.
  json_object& text(std::string_view key, std::string_view value) { return raw(key, json_text(value)); }
  json_object& flag(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  json_object& number(std::string_view key, std::integral auto value) { return raw(key, std::to_string(value)); }
  json_object& members_of(const json_object& other) {
    text_ += text_.size() > 1 && other.text_.size() > 1 ? "," : "";
    text_ += std::string_view(other.text_).substr(1);
    return *this;
  }
  json_object& value(std::string_view key, json::value v) { return raw(key, json::minified(v)); }

  std::string str() const { return text_ + '}'; }

private:
  std::string text_ = "{";
};

/// "[a,b]" from the elements' JSON.
template <class List>
std::string json_list(const List& elements) {
  std::string result = "[";
  for (const auto& one : elements) {
    result += result.size() > 1 ? "," : "";
    result += one;
  }
  return result += ']';
}

} // namespace troupe
