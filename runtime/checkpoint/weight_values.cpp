#include "runtime/checkpoint/weight_values.hpp"

#include "kernels/formats/bf16.hpp"
#include "kernels/formats/f16.hpp"
#include "kernels/formats/weight_groups.hpp"

#include <bit>
#include <cstring>

namespace troupe {

void to_floats(kernels::weight_format format, const void* row, std::size_t cols, float* out) {
  using kernels::weight_format;
  if (format == weight_format::f32) {
    std::memcpy(out, row, cols * sizeof(float));
  } else if (is_float(format)) {
    for (std::size_t i = 0; i < cols; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, static_cast<const char*>(row) + i * sizeof half, sizeof half);
      out[i] = format == weight_format::f16 ? kernels::from_f16(half) : std::bit_cast<float>(std::uint32_t(half) << 16);
    }
  } else {
    expand(format, row, 0, cols, out);
  }
}

float rounded_to(kernels::weight_format format, float value) {
  using kernels::weight_format;
  return format == weight_format::f16 ? kernels::from_f16(kernels::to_f16(value))
    : format == weight_format::bf16   ? std::bit_cast<float>(std::uint32_t{kernels::to_bf16(value)} << 16)
                                      : value;
}

} // namespace troupe
