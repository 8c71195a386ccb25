#include "runtime/checkpoint/checkpoint.hpp"

namespace troupe {

std::string_view to_string(tensor_type type) {
  switch (type) {
    case tensor_type::boolean: return "BOOL";
    case tensor_type::u8: return "U8";
    case tensor_type::i8: return "I8";
    case tensor_type::f8_e5m2: return "F8_E5M2";
    case tensor_type::f8_e4m3: return "F8_E4M3";
    case tensor_type::f8_e8m0: return "F8_E8M0";
    case tensor_type::u16: return "U16";
    case tensor_type::i16: return "I16";
    case tensor_type::f16: return "F16";
    case tensor_type::bf16: return "BF16";
    case tensor_type::u32: return "U32";
    case tensor_type::i32: return "I32";
    case tensor_type::f32: return "F32";
    case tensor_type::u64: return "U64";
    case tensor_type::i64: return "I64";
    case tensor_type::f64: return "F64";
    case tensor_type::c64: return "C64";
    case tensor_type::q4_0: return "Q4_0";
    case tensor_type::q4_1: return "Q4_1";
    case tensor_type::q5_0: return "Q5_0";
    case tensor_type::q5_1: return "Q5_1";
    case tensor_type::q8_0: return "Q8_0";
    case tensor_type::q4_k: return "Q4_K";
    case tensor_type::q5_k: return "Q5_K";
    case tensor_type::q6_k: return "Q6_K";
    case tensor_type::fp8_rows: return "F8_E4M3";
  }
  return "unknown";
}

std::size_t size_of(tensor_type type) {
  if (type <= tensor_type::f8_e8m0)
    return 1;
  if (type <= tensor_type::bf16)
    return 2;
  return type <= tensor_type::f32 ? 4 : 8;
}

std::optional<kernels::weight_format> weight_format_of(tensor_type type) {
  using kernels::weight_format;
  switch (type) {
    case tensor_type::f32: return weight_format::f32;
    case tensor_type::f16: return weight_format::f16;
    case tensor_type::bf16: return weight_format::bf16;
    case tensor_type::q4_0: return weight_format::q4_0;
    case tensor_type::q4_1: return weight_format::q4_1;
    case tensor_type::q5_0: return weight_format::q5_0;
    case tensor_type::q5_1: return weight_format::q5_1;
    case tensor_type::q8_0: return weight_format::q8_0;
    case tensor_type::q4_k: return weight_format::q4_k;
    case tensor_type::q5_k: return weight_format::q5_k;
    case tensor_type::q6_k: return weight_format::q6_k;
    case tensor_type::fp8_rows: return weight_format::fp8;
    default: return std::nullopt;
  }
}

std::string to_string(const std::vector<std::size_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string shown(std::string_view name) {
  constexpr std::size_t longest = 120;
  std::string text = "`";
  for (unsigned char c : name.substr(0, longest))
    text += c < 0x20 || c == 0x7f ? '?' : static_cast<char>(c);
  return text + (name.size() > longest ? "...`" : "`");
}

} // namespace troupe
