// Parses JSON (simdjson). Errors name the file or body. See json_reader.hpp for typed access to values.
#pragma once

#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/text/simdjson.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::json {

using value = simdjson::dom::element;
using object = simdjson::dom::object;
using array = simdjson::dom::array;

/// A parsed text. Owns the memory that its values point into.
class document {
public:
  /// Infinities and NaN, which JSON lacks and Python writes, become strings. Throws failure(not_found | bad_file)
  /// naming the file.
  static document load(const std::filesystem::path& file, const file_kind& kind = files::configuration);
  /// Throws failure(code) with "`name`: line 3: what is wrong"; the line is left
  /// out where a text has one only. Refuses an object with duplicate keys, because JSON leaves open
  /// which one counts. O(n log n) for n bytes.
  static document parse(std::string_view text, std::string name, errc code = errc::bad_file);

  value root() const { return root_; }
  const std::string& name() const { return name_; }
  errc code() const { return code_; }

private:
  std::unique_ptr<simdjson::dom::parser> parser_;
  value root_;
  std::string name_;
  errc code_ = errc::bad_file;
};

/// The member `key`, or nothing if it is absent or null.
std::optional<value> find(value object, std::string_view key);

/// "a string", "an integer", "an object", ...: for messages.
std::string_view kind_of(value v);

} // namespace troupe::json
