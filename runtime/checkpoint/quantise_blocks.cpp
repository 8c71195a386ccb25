#include "runtime/checkpoint/quantise_blocks.hpp"

#include "kernels/formats/bf16.hpp"
#include "kernels/formats/f16.hpp"
#include "kernels/formats/quantise_groups.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace troupe {

namespace {

using kernels::group_inputs;
using kernels::weight_format;
using kernels::weight_group;

/// Codes 0 to 15 for -8 to 7 times a scale. The weight of the largest magnitude becomes about -8. Several scales around
/// that are tried and refitted to their codes; the one with the least squared error is kept.
weight_group symmetric_int4(const float* weights) {
  const float extreme = *std::max_element(weights, weights + group_inputs,
                                          [](float a, float b) { return std::abs(a) < std::abs(b); });
  weight_group best;
  best.zero = 8;
  std::fill_n(best.codes, group_inputs, std::uint8_t{8});
  if (!(std::abs(extreme) > 0))
    return best;
  if (!std::isfinite(extreme))
    return best.d = 0x7e00, best;
  float least = std::numeric_limits<float>::infinity();
  for (const float steps : {-8.0f, -7.6f, -8.4f, -7.2f, -8.8f, 7.5f}) {
    float scale = extreme / steps;
    for (int round = 0; round < 3; ++round) {
      weight_group group;
      group.zero = 8;
      group.d = kernels::to_f16(scale);
      const float rounded = kernels::from_f16(group.d);
      const float inverse = rounded != 0 ? 1 / rounded : 0;
      float error = 0, products = 0, squares = 0;
      for (std::size_t i = 0; i < group_inputs; ++i) {
        const float code = std::nearbyint(std::clamp(weights[i] * inverse, -8.0f, 7.0f));
        const float difference = code * rounded - weights[i];
        error += difference * difference;
        products += code * weights[i];
        squares += code * code;
        group.codes[i] = static_cast<std::uint8_t>(code + 8);
      }
      if (error < least) {
        least = error;
        best = group;
      }
      if (squares > 0)
        scale = products / squares;
    }
  }
  return best;
}

/// Writes one block of 32.
void write_block(weight_format format, const float* weights, std::uint8_t* to) {
  const auto group = format == weight_format::q8_0 ? kernels::quantise_int8(weights)
    : format == weight_format::q4_0                ? symmetric_int4(weights)
                                                   : kernels::quantise_int4(weights);
  const auto put = [&](std::uint16_t half) {
    *to++ = static_cast<std::uint8_t>(half & 0xff);
    *to++ = static_cast<std::uint8_t>(half >> 8);
  };
  put(group.d);
  if (format == weight_format::q4_1)
    put(group.m);
  if (format == weight_format::q8_0)
    for (const auto code : group.codes)
      *to++ = code ^ 0x80;
  else
    for (std::size_t i = 0; i < group_inputs / 2; ++i)
      *to++ = static_cast<std::uint8_t>(group.codes[i] | group.codes[i + 16] << 4);
}

} // namespace

void quantise_row(weight_format format, const float* row, std::size_t cols, void* to) {
  auto* bytes = static_cast<std::uint8_t*>(to);
  switch (format) {
    case weight_format::f32: std::memcpy(to, row, cols * sizeof(float)); return;
    case weight_format::f16:
    case weight_format::bf16:
      for (std::size_t i = 0; i < cols; ++i) {
        const auto half = format == weight_format::f16 ? kernels::to_f16(row[i]) : kernels::to_bf16(row[i]);
        std::memcpy(bytes + i * sizeof half, &half, sizeof half);
      }
      return;
    case weight_format::q8_0:
    case weight_format::q4_0:
    case weight_format::q4_1:
      for (std::size_t i = 0; i < cols; i += group_inputs)
        write_block(format, row + i, bytes + row_bytes(format, i));
      return;
    default: throw failure(errc::internal, std::string("weights cannot be written as ") + to_string(format));
  }
}

} // namespace troupe
