// Values of GGUF files as bytes: shared by what reads files and what looks metadata up.
#pragma once

#include "runtime/checkpoint/gguf.hpp"

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace troupe::gguf_values {

/// Bytes of a scalar; 0 for strings and arrays.
std::size_t size_of(gguf_type type);

std::string_view name_of(gguf_type type);

template <class T>
T load(const std::byte* from) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

} // namespace troupe::gguf_values
