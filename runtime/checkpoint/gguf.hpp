// The container format GGUF, versions 2 and 3: typed metadata, then tensors. This layer reads and checks the content of
// one file; gguf_file.hpp opens files, and runtime/import gives keys and tensors their meaning. Files are untrusted:
// everything is checked first.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/support/error.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// With the numbers used in files.
enum class gguf_type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// A metadata value, checked to lie within the file.
struct gguf_value {
  gguf_type type = gguf_type::u8;
  std::span<const std::byte> bytes;  // a scalar, a string's characters, or an array's elements
  gguf_type element = gguf_type::u8; // arrays only
  std::uint64_t count = 0;           // arrays only
};

/// Metadata by key. The readers return nothing if the key is absent, and throw failure(bad_file) if its value is of
/// another kind or out of range, naming the file, the key, what was found and what was expected.
class gguf_metadata {
public:
  explicit gguf_metadata(std::string file) : file_(std::move(file)) {}

  /// False if the key exists already.
  bool add(std::string_view key, const gguf_value& value) { return values_.emplace(key, value).second; }

  const gguf_value* find(std::string_view key) const;
  std::size_t size() const { return values_.size(); }
  const std::map<std::string_view, gguf_value>& all() const { return values_; }

  /// Any integer type, in [low, high]. An array counts as its element, which must be the same throughout.
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  /// Any number, finite and in [low, high].
  std::optional<double> number(std::string_view key, double low, double high) const;
  std::optional<bool> boolean(std::string_view key) const;
  /// Valid UTF-8.
  std::optional<std::string_view> string(std::string_view key) const;
  /// An array of strings, each valid UTF-8.
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;
  /// An array of f32.
  std::optional<std::vector<float>> floats(std::string_view key) const;
  std::optional<std::vector<bool>> booleans(std::string_view key) const;
  /// An array of i32 or u32.
  std::optional<std::vector<std::int32_t>> integers(std::string_view key) const;

  /// "model.gguf: `key`"
  std::string label(std::string_view key) const { return file_ + ": " + shown(key); }

private:
  const gguf_value* array_of(std::string_view key, gguf_type element, gguf_type other, std::string_view expected) const;

  std::string file_;
  std::map<std::string_view, gguf_value> values_; // keys point into the file
};

struct gguf_tensor {
  tensor_info info;
  std::size_t offset = 0; // from the start of the file
  std::size_t part = 0;   // which of a model's files
};

struct gguf_content {
  gguf_metadata metadata;
  std::map<std::string, gguf_tensor, std::less<>> tensors;
};

/// How much of a file to read: tensors may be of types that only other programs support.
enum class gguf_part : std::uint8_t { metadata, all };

/// Reads and checks `file`, the whole content of the file called `name`; the result points into it. Tensors must lie
/// within the file, at multiples of its alignment, without overlap. Throws failure(bad_file | unsupported).
gguf_content read_gguf(std::span<const std::byte> file, const std::string& name, gguf_part part = gguf_part::all);

} // namespace troupe
