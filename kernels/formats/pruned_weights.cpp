#include "kernels/formats/pruned_weights.hpp"

#include "kernels/formats/bf16.hpp"
#include "kernels/formats/f16.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace troupe::kernels {

namespace {

std::size_t value_bytes(weight_format f) { return size_of(dtype_of(whole_format(f))); }

float read_value(weight_format whole, const char* from) {
  if (whole == weight_format::f32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return whole == weight_format::f16 ? from_f16(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

void write_value(weight_format whole, char* to, float value) {
  if (whole == weight_format::f32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = whole == weight_format::f16 ? to_f16(value) : to_bf16(value);
  std::memcpy(to, &bits, sizeof bits);
}

} // namespace

kept_pair pruned_pair(weight_format f, const void* row, std::size_t four) {
  const auto whole = whole_format(f);
  const auto size = value_bytes(f);
  const auto* block = static_cast<const char*>(row) + four / 2 * block_bytes(f);
  const auto* values = block + four % 2 * 2 * size;
  const int places = static_cast<unsigned char>(block[4 * size]) >> four % 2 * 4;
  return {read_value(whole, values), read_value(whole, values + size), places & 3, places >> 2 & 3};
}

void store_pruned_pair(weight_format f, void* row, std::size_t four, const kept_pair& pair) {
  const auto whole = whole_format(f);
  const auto size = value_bytes(f);
  auto* block = static_cast<char*>(row) + four / 2 * block_bytes(f);
  auto* values = block + four % 2 * 2 * size;
  write_value(whole, values, pair.first);
  write_value(whole, values + size, pair.second);
  block[4 * size] = static_cast<char>(static_cast<unsigned char>(block[4 * size]) |
                                      (pair.first_place | pair.second_place << 2) << four % 2 * 4);
}

void expand_pruned(weight_format f, const void* row, std::size_t first, std::size_t count, float* weights) {
  std::fill_n(weights, count, 0.0f);
  for (std::size_t i = 0; i < count; i += 4) {
    const auto pair = pruned_pair(f, row, (first + i) / 4);
    weights[i + static_cast<std::size_t>(pair.first_place)] = pair.first;
    weights[i + static_cast<std::size_t>(pair.second_place)] = pair.second;
  }
}

} // namespace troupe::kernels
