// A value within tokenizer.json that knows its path, so that whoever reads it can refuse it by name:
// "tokenizer.json: `decoder.decoders[2].content` must be a string, not null". Used while a tokenizer is loaded.
#pragma once

#include "runtime/support/json.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tokenization {

class field {
public:
  explicit field(const json::document& document) : value_(document.root()), file_(&document.name()) {}

  /// The member `key`; throws where it is absent or null, or this is no object.
  field at(std::string_view key) const;
  /// The same, or nothing where it is absent or null.
  std::optional<field> find(std::string_view key) const;
  std::vector<field> items() const;

  std::string_view string() const; // valid UTF-8
  bool boolean() const;
  /// From 0 to `maximum`.
  std::uint64_t integer(std::uint64_t maximum) const;
  bool is_object() const { return value_.is_object(); }
  bool is_zero() const; // the number 0
  bool boolean_or(std::string_view key, bool absent) const;
  /// Exactly one character.
  char32_t character() const;

  json::array array() const;
  json::object object() const;

  /// "`file`: `path` `what`".
  [[noreturn]] void refuse(std::string_view what, errc code = errc::bad_file) const;

private:
  field(json::value value, const std::string* file, std::string path)
    : value_(value), file_(file), path_(std::move(path)) {}
  [[noreturn]] void expected(std::string_view what) const;

  json::value value_;
  const std::string* file_;
  std::string path_; // empty at the root
};

} // namespace troupe::tokenization
