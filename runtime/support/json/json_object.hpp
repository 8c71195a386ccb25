// Puts a JSON object together, member by member, for answers and for requests that are translated into others.
#pragma once

#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/json_text.hpp"

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
  /// Adds a text, or null if it is empty.
  json_object& text_or_null(std::string_view key, std::string_view value) {
    return value.empty() ? null(key) : text(key, value);
  }
  json_object& null(std::string_view key) { return raw(key, "null"); }
  json_object& flag(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  json_object& number(std::string_view key, std::integral auto value) { return raw(key, std::to_string(value)); }
  json_object& number(std::string_view key, std::floating_point auto value) { return raw(key, json_number(value)); }
  json_object& object(std::string_view key, const json_object& value) { return raw(key, value.str()); }
  /// Adds a list. Its elements are JSON already.
  template <class List>
  json_object& list(std::string_view key, const List& elements);
  json_object& members_of(const json_object& other) {
    text_ += text_.size() > 1 && other.text_.size() > 1 ? "," : "";
    text_ += std::string_view(other.text_).substr(1);
    return *this;
  }
  json_object& value(std::string_view key, json::value v) { return raw(key, json::minified(v)); }

  bool empty() const { return text_.size() == 1; }
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

template <class List>
json_object& json_object::list(std::string_view key, const List& elements) {
  return raw(key, json_list(elements));
}

} // namespace troupe
