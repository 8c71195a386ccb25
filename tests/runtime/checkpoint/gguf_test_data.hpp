// Builds GGUF files by hand, for tests that need one wrong part.
#pragma once

#include "runtime/checkpoint/gguf.hpp"

#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace troupe::test {

/// Little-endian.
template <class T>
std::string packed(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string packed_string(std::string_view text) {
  return packed(std::uint64_t{text.size()}) + std::string(text);
}

inline std::string packed_type(gguf_type type) { return packed(static_cast<std::uint32_t>(type)); }

template <class T>
std::string entry(std::string_view key, gguf_type type, T value) {
  return packed_string(key) + packed_type(type) + packed(value);
}

inline std::string entry(std::string_view key, std::string_view text) {
  return packed_string(key) + packed_type(gguf_type::string) + packed_string(text);
}

/// `elements`, already packed.
inline std::string array_entry(std::string_view key, gguf_type element, std::uint64_t count,
                               std::string_view elements) {
  return packed_string(key) + packed_type(gguf_type::array) + packed_type(element) + packed(count) +
    std::string(elements);
}

/// `shape` as in the file: innermost first.
inline std::string tensor_entry(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
                                std::uint64_t offset) {
  std::string bytes = packed_string(name) + packed(static_cast<std::uint32_t>(shape.size()));
  for (auto size : shape)
    bytes += packed(size);
  return bytes + packed(type) + packed(offset);
}

/// A whole file: header, `keys` entries, `tensors` entries, padding to 32 bytes, `data` zero bytes.
struct gguf_text {
  std::vector<std::string> keys, tensors;
  std::size_t data = 0;
  std::uint32_t version = 3;

  std::string str() const {
    std::string file = "GGUF" + packed(version) + packed(std::uint64_t{tensors.size()}) +
      packed(std::uint64_t{keys.size()});
    for (const auto& key : keys)
      file += key;
    for (const auto& tensor : tensors)
      file += tensor;
    file.resize((file.size() + 31) / 32 * 32 + data);
    return file;
  }
};

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

} // namespace troupe::test
