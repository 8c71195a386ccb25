// Typed access to the fields of a request body. Every complaint names the field, what was expected and what was found,
// as failure(bad_request) with OpenAI's `param`. Absent and null are the same. Used while parsing, on worker threads.
#pragma once

#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/json.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class field_reader {
public:
  /// `path` is put ahead of the names in complaints: "stream_options.". Throws where `body` is no object.
  explicit field_reader(json::value body, std::string path = {});

  std::optional<json::value> find(std::string_view key) const { return json::find(body_, key); }
  bool has(std::string_view key) const { return find(key).has_value(); }

  std::optional<double> number(std::string_view key, number_range range) const;
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t least, std::int64_t most) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  /// A list of at most `most_entries` integers.
  std::optional<std::vector<std::int32_t>> ids(std::string_view key, std::int64_t least, std::int64_t most,
                                               std::size_t most_entries) const;
  /// One text or a list of at most `most` of them.
  std::optional<std::vector<std::string>> texts(std::string_view key, std::size_t most) const;
  std::optional<field_reader> object(std::string_view key) const;
  /// A list of at most `most` entries of any kind.
  std::optional<json::array> list(std::string_view key, std::size_t most = ~std::size_t{0}) const;

  json::value body() const { return body_; }
  std::string name_of(std::string_view key) const { return path_ + std::string(key); }

  /// Throws "`key` must be <wanted>, not <found>".
  [[noreturn]] void refuse(std::string_view key, std::string_view wanted, json::value found) const;
  /// Throws "`key` <complaint>".
  [[noreturn]] void refuse(std::string_view key, std::string_view complaint) const;

private:
  json::value body_;
  std::string path_;
};

/// The list as integers in [least, most]; throws naming `key` of `at`.
std::vector<std::int32_t> read_ids(const field_reader& at, std::string_view key, json::array list, std::int64_t least,
                                   std::int64_t most);

/// Throws naming `key` of `at` where a list has more than `most` entries.
void check_entries(const field_reader& at, std::string_view key, std::size_t entries, std::size_t most);

} // namespace troupe
