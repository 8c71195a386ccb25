// Metadata of GGUF files by key, each checked for its type and range.
#include "runtime/checkpoint/gguf.hpp"
#include "runtime/checkpoint/gguf_values.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"

namespace troupe {

namespace gguf_values {

std::size_t size_of(gguf_type type) {
  switch (type) {
    case gguf_type::u8:
    case gguf_type::i8:
    case gguf_type::boolean: return 1;
    case gguf_type::u16:
    case gguf_type::i16: return 2;
    case gguf_type::u32:
    case gguf_type::i32:
    case gguf_type::f32: return 4;
    case gguf_type::u64:
    case gguf_type::i64:
    case gguf_type::f64: return 8;
    case gguf_type::string:
    case gguf_type::array: return 0;
  }
  return 0;
}

std::string_view name_of(gguf_type type) {
  constexpr std::string_view names[] = {"u8",      "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "boolean", "string", "array", "u64", "i64", "f64"};
  return names[static_cast<std::size_t>(type)];
}

} // namespace gguf_values

namespace {

using namespace gguf_values;

/// A scalar of any number type, as `T`.
template <class T>
T converted(gguf_type type, const std::byte* from) {
  switch (type) {
    case gguf_type::u8: return static_cast<T>(load<std::uint8_t>(from));
    case gguf_type::i8: return static_cast<T>(load<std::int8_t>(from));
    case gguf_type::u16: return static_cast<T>(load<std::uint16_t>(from));
    case gguf_type::i16: return static_cast<T>(load<std::int16_t>(from));
    case gguf_type::u32: return static_cast<T>(load<std::uint32_t>(from));
    case gguf_type::i32: return static_cast<T>(load<std::int32_t>(from));
    case gguf_type::u64: return static_cast<T>(load<std::uint64_t>(from));
    case gguf_type::i64: return static_cast<T>(load<std::int64_t>(from));
    case gguf_type::f32: return static_cast<T>(load<float>(from));
    case gguf_type::f64: return static_cast<T>(load<double>(from));
    default: return T{};
  }
}

bool is_float(gguf_type type) { return type == gguf_type::f32 || type == gguf_type::f64; }
bool is_integer(gguf_type type) { return size_of(type) != 0 && !is_float(type) && type != gguf_type::boolean; }

std::string described(const gguf_value& value) {
  if (value.type != gguf_type::array)
    return std::string(name_of(value.type));
  return "an array of " + std::string(name_of(value.element));
}

template <class T>
std::optional<std::vector<T>> numbers_of(const gguf_value* found) {
  if (!found)
    return std::nullopt;
  std::vector<T> result(found->count);
  if (!result.empty())
    std::memcpy(result.data(), found->bytes.data(), found->bytes.size());
  return result;
}

} // namespace

const gguf_value* gguf_metadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<std::int64_t> gguf_metadata::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const auto* found = find(key);
  if (!found)
    return std::nullopt;
  const bool many = found->type == gguf_type::array;
  const auto type = many ? found->element : found->type;
  if (!is_integer(type) || (many && found->count == 0))
    throw failure(errc::bad_file, label(key) + " must be an integer, found " + described(*found));
  const auto size = size_of(type);
  for (std::uint64_t i = 1; many && i < found->count; ++i)
    if (std::memcmp(found->bytes.data(), found->bytes.data() + i * size, size) != 0)
      throw failure(errc::unsupported, label(key) + " differs from layer to layer, which is not supported");
  const auto* const data = found->bytes.data();
  const bool too_high = type == gguf_type::u64 && load<std::uint64_t>(data) > INT64_MAX;
  const auto value = converted<std::int64_t>(type, data);
  if (too_high || value < low || value > high)
    throw failure(errc::bad_file,
                  label(key) + " must be from " + std::to_string(low) + " to " + std::to_string(high) + ", found " +
                    (too_high ? std::to_string(load<std::uint64_t>(data)) : std::to_string(value)));
  return value;
}

std::optional<double> gguf_metadata::number(std::string_view key, double low, double high) const {
  const auto* found = find(key);
  if (!found)
    return std::nullopt;
  if (!is_integer(found->type) && !is_float(found->type))
    throw failure(errc::bad_file, label(key) + " must be a number, found " + described(*found));
  const auto value = converted<double>(found->type, found->bytes.data());
  if (!(value >= low && value <= high))
    throw failure(errc::bad_file,
                  label(key) + " must be from " + to_decimal(low) + " to " + to_decimal(high) + ", found " +
                    to_decimal(value));
  return value;
}

std::optional<bool> gguf_metadata::boolean(std::string_view key) const {
  const auto* found = find(key);
  if (!found)
    return std::nullopt;
  if (found->type != gguf_type::boolean)
    throw failure(errc::bad_file, label(key) + " must be a boolean, found " + described(*found));
  return std::to_integer<int>(found->bytes[0]) != 0;
}

std::optional<std::string_view> gguf_metadata::string(std::string_view key) const {
  const auto* found = find(key);
  if (!found)
    return std::nullopt;
  if (found->type != gguf_type::string)
    throw failure(errc::bad_file, label(key) + " must be a string, found " + described(*found));
  if (!is_utf8(text_of(found->bytes)))
    throw failure(errc::bad_file, label(key) + " is not valid UTF-8");
  return text_of(found->bytes);
}

const gguf_value* gguf_metadata::array_of(std::string_view key, gguf_type element, gguf_type other,
                                          std::string_view expected) const {
  const auto* found = find(key);
  if (found && (found->type != gguf_type::array || (found->element != element && found->element != other)))
    throw failure(errc::bad_file,
                  label(key) + " must be an array of " + std::string(expected) + ", found " + described(*found));
  return found;
}

std::optional<std::vector<std::string_view>> gguf_metadata::strings(std::string_view key) const {
  const auto* found = array_of(key, gguf_type::string, gguf_type::string, "strings");
  if (!found)
    return std::nullopt;
  std::vector<std::string_view> result;
  result.reserve(found->count);
  for (auto rest = found->bytes; !rest.empty();) {
    const auto length = load<std::uint64_t>(rest.data());
    result.push_back(text_of(rest.subspan(sizeof length, length)));
    if (!is_utf8(result.back()))
      throw failure(errc::bad_file,
                    label(key) + " holds text that is not valid UTF-8 at index " + std::to_string(result.size() - 1));
    rest = rest.subspan(sizeof length + length);
  }
  return result;
}

std::optional<std::vector<float>> gguf_metadata::floats(std::string_view key) const {
  return numbers_of<float>(array_of(key, gguf_type::f32, gguf_type::f32, "f32"));
}

std::optional<std::vector<bool>> gguf_metadata::booleans(std::string_view key) const {
  const auto* found = array_of(key, gguf_type::boolean, gguf_type::boolean, "booleans");
  if (!found)
    return std::nullopt;
  std::vector<bool> result;
  for (const auto value : found->bytes)
    result.push_back(value != std::byte{0});
  return result;
}

std::optional<std::vector<std::int32_t>> gguf_metadata::integers(std::string_view key) const {
  return numbers_of<std::int32_t>(array_of(key, gguf_type::i32, gguf_type::u32, "32-bit integers"));
}

} // namespace troupe
