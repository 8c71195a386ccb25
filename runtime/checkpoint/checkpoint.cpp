#include "runtime/checkpoint/checkpoint.hpp"

#include "runtime/support/text/visible_text.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

namespace {

struct element_traits {
  element_type type;
  std::string_view name; // safetensors'
  std::size_t bytes;
};

constexpr element_traits elements[] = {
  {element_type::boolean, "BOOL", 1},    {element_type::u8, "U8", 1},           {element_type::i8, "I8", 1},
  {element_type::f8_e5m2, "F8_E5M2", 1}, {element_type::f8_e4m3, "F8_E4M3", 1}, {element_type::f8_e8m0, "F8_E8M0", 1},
  {element_type::u16, "U16", 2},         {element_type::i16, "I16", 2},         {element_type::u32, "U32", 4},
  {element_type::i32, "I32", 4},         {element_type::u64, "U64", 8},         {element_type::i64, "I64", 8},
  {element_type::f64, "F64", 8},         {element_type::c64, "C64", 8},
};

constexpr const element_traits& traits_of(element_type type) { return elements[static_cast<std::size_t>(type)]; }

static_assert(
  [] {
    for (std::size_t i = 0; i < std::size(elements); ++i)
      if (elements[i].type != static_cast<element_type>(i))
        return false;
    return true;
  }(),
  "the table must be in the order of element_type");

} // namespace

std::string_view to_string(tensor_type type) {
  const auto format = type.format();
  return format ? kernels::traits_of(*format).name_in_files : traits_of(type.element()).name;
}

std::optional<tensor_type> parse_safetensors_type(std::string_view dtype) {
  for (const auto& format : kernels::weight_formats)
    if (format.in_safetensors && dtype == format.name_in_files)
      return format.format;
  for (const auto& element : elements)
    if (dtype == element.name)
      return element.type;
  return std::nullopt;
}

std::size_t size_of(tensor_type type) {
  const auto format = type.format();
  return format ? kernels::block_bytes(*format) : traits_of(type.element()).bytes;
}

std::string to_string(const std::vector<std::size_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string shown(std::string_view name) {
  constexpr std::size_t longest = 120;
  auto end = std::min(name.size(), longest);
  while (end < name.size() && end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80)
    --end; // to between two characters
  return '`' + visible_name(name.substr(0, end)) + (end < name.size() ? "...`" : "`");
}

} // namespace troupe
