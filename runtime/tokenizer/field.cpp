#include "runtime/tokenizer/field.hpp"

#include "runtime/tokenizer/unicode.hpp"

namespace troupe::tokenization {

field field::at(std::string_view key) const {
  if (auto found = find(key))
    return *found;
  field(value_, file_, path_.empty() ? std::string(key) : path_ + "." + std::string(key)).refuse("is missing");
}

std::optional<field> field::find(std::string_view key) const {
  object();
  if (auto found = json::find(value_, key))
    return field(*found, file_, path_.empty() ? std::string(key) : path_ + "." + std::string(key));
  return std::nullopt;
}

std::vector<field> field::items() const {
  std::vector<field> result;
  for (json::value item : array())
    result.push_back(field(item, file_, path_ + "[" + std::to_string(result.size()) + "]"));
  return result;
}

std::string_view field::string() const {
  std::string_view text;
  if (value_.get_string().get(text))
    expected("a string");
  if (!is_utf8(text)) // an escaped half of a surrogate pair
    expected("valid Unicode");
  return text;
}

bool field::boolean() const {
  bool result = false;
  if (value_.get_bool().get(result))
    expected("a boolean");
  return result;
}

std::uint64_t field::integer(std::uint64_t maximum) const {
  std::uint64_t result = 0;
  if (value_.get_uint64().get(result) || result > maximum)
    expected("an integer from 0 to " + std::to_string(maximum));
  return result;
}

bool field::is_zero() const {
  double result = 0;
  if (value_.get_double().get(result))
    expected("a number");
  return result == 0;
}

bool field::boolean_or(std::string_view key, bool absent) const {
  const auto found = find(key);
  return found ? found->boolean() : absent;
}

char32_t field::character() const {
  const auto text = string();
  std::size_t end = 0;
  const char32_t c = text.empty() ? 0 : next_char(text, end);
  if (text.empty() || end != text.size())
    expected("one character");
  return c;
}

json::array field::array() const {
  json::array result;
  if (value_.get_array().get(result))
    expected("an array");
  return result;
}

json::object field::object() const {
  json::object result;
  if (value_.get_object().get(result))
    expected("an object");
  return result;
}

void field::refuse(std::string_view what, errc code) const {
  throw failure(code, *file_ + ": " + (path_.empty() ? "the file" : "`" + path_ + "`") + " " + std::string(what));
}

void field::expected(std::string_view what) const {
  std::string_view text;
  std::string found(json::kind_of(value_));
  if (!value_.get_string().get(text)) {
    if (text.size() <= 40 && is_utf8(text))
      found = "`" + std::string(text) + "`";
  } else if (!value_.is_object() && !value_.is_array()) {
    found = "`" + std::string(simdjson::minify(value_)) + "`";
  }
  refuse("must be " + std::string(what) + ", not " + found);
}

} // namespace troupe::tokenization
