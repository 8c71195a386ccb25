#include "runtime/json.hpp"

namespace troupe::json {

document document::load(const std::filesystem::path& file) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(file, ec))
    throw failure(errc::not_found, file.string() + ": no such file");
  simdjson::padded_string text;
  if (simdjson::padded_string::load(file.string()).get(text))
    throw failure(errc::bad_file, file.string() + ": cannot be read");
  return parse(text, file.string());
}

document document::parse(std::string_view text, std::string name, errc code) {
  document result;
  result.parser_ = std::make_unique<simdjson::dom::parser>();
  result.name_ = std::move(name);
  result.code_ = code;
  if (auto ec = result.parser_->parse(text.data(), text.size()).get(result.root_))
    throw failure(code, result.name_ + ": not valid JSON: " + simdjson::error_message(ec));
  return result;
}

std::optional<value> find(value v, std::string_view key) {
  value found;
  if (!v.is_object() || v.at_key(key).get(found) || found.is_null())
    return std::nullopt;
  return found;
}

std::string_view kind_of(value v) {
  switch (v.type()) {
    case simdjson::dom::element_type::ARRAY: return "an array";
    case simdjson::dom::element_type::OBJECT: return "an object";
    case simdjson::dom::element_type::INT64:
    case simdjson::dom::element_type::UINT64: return "an integer";
    case simdjson::dom::element_type::DOUBLE: return "a number";
    case simdjson::dom::element_type::STRING: return "a string";
    case simdjson::dom::element_type::BOOL: return "a boolean";
    default: return "null";
  }
}

} // namespace troupe::json
