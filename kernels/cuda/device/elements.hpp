// Elements of tensors and of the paged cache as floats. Only for kernels.
#pragma once

#include "kernels/cuda/device/kv_layout.hpp"
#include "kernels/cuda/device/simt.hpp"
#include "kernels/formats/e4m3.hpp"

namespace troupe::kernels::cuda {

/// Elements of a tensor as floats.
TROUPE_DEVICE float load_float(const void* data, dtype type, std::size_t index) {
  if (type == dtype::f32)
    return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  return type == dtype::bf16 ? simt::bf16_to_float(bits) : simt::f16_to_float(bits);
}

/// Stores f32 or bf16.
TROUPE_DEVICE void store_float(void* data, dtype type, std::size_t index, float x) {
  if (type == dtype::f32)
    static_cast<float*>(data)[index] = x;
  else
    static_cast<std::uint16_t*>(data)[index] = simt::float_to_bf16(x);
}

/// Stores two elements, at once if `index` is even and rows start at multiples of two elements (`aligned`).
TROUPE_DEVICE void store_pair(void* data, dtype type, std::size_t index, float x, float y, bool aligned) {
  if (!aligned) {
    store_float(data, type, index, x);
    store_float(data, type, index + 1, y);
  } else if (type == dtype::f32) {
    *reinterpret_cast<words2*>(static_cast<float*>(data) + index) = {simt::float_to_bits(x), simt::float_to_bits(y)};
  } else {
    *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(data) + index) = simt::float_to_bf16_pair(x, y);
  }
}

/// Element or code `index` of a head's block, without its scale.
TROUPE_DEVICE float load_cell(const unsigned char* data, kv_type type, std::size_t index) {
  switch (type) {
    case kv_type::f32: return reinterpret_cast<const float*>(data)[index];
    case kv_type::bf16: return simt::bf16_to_float(reinterpret_cast<const std::uint16_t*>(data)[index]);
    case kv_type::int8: return static_cast<float>(static_cast<std::int8_t>(data[index]));
    case kv_type::fp8: return from_e4m3(data[index]);
  }
  return 0;
}

} // namespace troupe::kernels::cuda
