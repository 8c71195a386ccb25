#include "runtime/json.hpp"

#include <algorithm>

namespace troupe::json {

/// Integers of more than 18 digits as real numbers: simdjson refuses those beyond 64 bits, and every
/// tokenizer_config.json that transformers writes has one (`model_max_length`, 1e30 written out).
static std::string with_wide_integers_as_reals(std::string_view text) {
  std::string result;
  result.reserve(text.size() + 8);
  const auto digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        i += text[i] == '\\';
      i = std::min(i + 1, text.size());
      result += text.substr(begin, i - begin);
    } else if (digit(i)) {
      bool integer = begin == 0 || (text[begin - 1] != '.' && text[begin - 1] != 'e' && text[begin - 1] != '+');
      while (digit(i))
        ++i;
      integer = integer && (i == text.size() || (text[i] != '.' && text[i] != 'e' && text[i] != 'E'));
      result += text.substr(begin, i - begin);
      if (integer && i - begin > 18)
        result += ".0";
    } else {
      result += text[i++];
    }
  }
  return result;
}

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
  auto ec = result.parser_->parse(text.data(), text.size()).get(result.root_);
  if (ec == simdjson::NUMBER_ERROR)
    ec = result.parser_->parse(with_wide_integers_as_reals(text)).get(result.root_);
  if (ec)
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
