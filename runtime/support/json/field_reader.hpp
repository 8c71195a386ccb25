// Typed access to the fields of a request body. Errors are failure(bad_request) with OpenAI's `param`; they name the
// field, the expectation and the value found. Absent and null mean the same. Used on worker threads.
#pragma once

#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/json/number_range.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class field_reader : public json::reader {
public:
  /// `path` leads to `body` when that is a part of the request: "stream_options". Throws unless `body` is an object.
  explicit field_reader(json::value body, std::string path = {});

  using json::reader::number;
  std::optional<double> number(std::string_view key, number_range range) const {
    return number(key, range.least, range.most, range.above_least);
  }
  /// A list of at most `most_entries` integers.
  std::optional<std::vector<std::int32_t>> ids(std::string_view key, std::int64_t least, std::int64_t most,
                                               std::size_t most_entries) const;
  /// One text or a list of at most `most` texts.
  std::optional<std::vector<std::string>> texts(std::string_view key, std::size_t most) const;
  std::optional<field_reader> object(std::string_view key) const;
  /// A list of at most `most` entries of any kind.
  std::optional<json::array> list(std::string_view key, std::size_t most = ~std::size_t{0}) const;

  json::value body() const { return get(); }

  using json::reader::refuse;
  /// Throws "`key` must be <wanted>, not <found>".
  [[noreturn]] void refuse(std::string_view key, std::string_view wanted, json::value found) const;
  /// Throws "`key` <complaint>".
  [[noreturn]] void refuse(std::string_view key, std::string_view complaint) const;
};

/// The list as integers in [least, most]. Throws failure naming `key` of `at`.
std::vector<std::int32_t> read_ids(const field_reader& at, std::string_view key, json::array list, std::int64_t least,
                                   std::int64_t most);

/// Throws failure naming `key` of `at` if a list has more than `most` entries.
void check_entries(const field_reader& at, std::string_view key, std::size_t entries, std::size_t most);

} // namespace troupe
