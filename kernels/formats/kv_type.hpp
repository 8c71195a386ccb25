// Storage types of K and V in a paged cache. Plain, so that the units of every device's kernels can include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

/// int8 and fp8 (E4M3) are symmetric codes, with one f32 scale per token and head for K and one for V. The largest
/// magnitude becomes 127 or 448; codes are rounded to nearest even.
enum class kv_type : std::uint8_t { f32, bf16, int8, fp8 };

constexpr const char* to_string(kv_type type) {
  switch (type) {
    case kv_type::f32: return "f32";
    case kv_type::bf16: return "bf16";
    case kv_type::int8: return "int8";
    case kv_type::fp8: return "fp8";
  }
  return "unknown";
}

constexpr bool is_scaled(kv_type type) { return type == kv_type::int8 || type == kv_type::fp8; }

/// Bytes of K and V of one head and token, with their scales.
constexpr std::size_t kv_bytes(kv_type type, int head_dim) {
  const auto elements = std::size_t(2) * static_cast<std::size_t>(head_dim);
  switch (type) {
    case kv_type::f32: return elements * 4;
    case kv_type::bf16: return elements * 2;
    case kv_type::int8:
    case kv_type::fp8: return elements + 2 * sizeof(float);
  }
  return 0;
}

/// Bytes of K alone. Scaled types have room for both scales all the same, so that K is read in one way.
constexpr std::size_t key_bytes(kv_type type, int head_dim) {
  const auto scales = is_scaled(type) ? 2 * sizeof(float) : 0;
  return (kv_bytes(type, head_dim) - scales) / 2 + scales;
}

} // namespace troupe::kernels
