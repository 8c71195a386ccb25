#include "runtime/checkpoint/quantised/quantise_blocks.hpp"

#include "kernels/formats/bf16.hpp"
#include "kernels/formats/f16.hpp"
#include "kernels/formats/quantise_groups.hpp"
#include "kernels/formats/store_groups.hpp"
#include "runtime/checkpoint/quantised/fit_blocks.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace troupe {

namespace {

using kernels::group_inputs;
using kernels::weight_format;
using kernels::weight_group;

constexpr std::size_t most_block = 256; // inputs
constexpr double unseen = 1e-3;         // the importance, relative to its block's, of an input that was always 0

/// How much errors of a block's inputs count. Large weights count more than others of their block: what an input is
/// multiplied with is known on average at best, and an error of a large weight is seen in more rows.
void weigh_errors(const float* x, const float* importance, std::size_t n, float* w) {
  float squares = 0;
  for (std::size_t i = 0; i < n; ++i)
    squares += x[i] * x[i];
  double sum = 0;
  std::size_t known = 0;
  const auto counts = [&](std::size_t i) { return importance && importance[i] > 0 && std::isfinite(importance[i]); };
  for (std::size_t i = 0; i < n; ++i)
    if (counts(i)) {
      sum += importance[i];
      ++known;
    }
  const double mean = known > 0 ? sum / double(known) : 1;
  const float square = squares / static_cast<float>(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double share = known == 0 ? 1 : counts(i) ? importance[i] / mean : unseen;
    const float weight = std::sqrt(square + x[i] * x[i]);
    w[i] = static_cast<float>(std::clamp(share, 1e-5, 1e5)) *
      (std::isfinite(weight) && weight > 1e-15f ? weight : 1e-15f);
  }
}

} // namespace

bool can_be_written(weight_format format) { return !is_only_read(format) && !is_fp8(format); }

void quantise_row(weight_format format, const float* row, std::size_t cols, void* to, const float* importance) {
  auto* bytes = static_cast<std::uint8_t*>(to);
  if (format == weight_format::f32) {
    std::memcpy(to, row, cols * sizeof(float));
  } else if (is_float(format)) {
    for (std::size_t i = 0; i < cols; ++i) {
      const auto half = format == weight_format::f16 ? kernels::to_f16(row[i]) : kernels::to_bf16(row[i]);
      std::memcpy(bytes + i * sizeof half, &half, sizeof half);
    }
  } else if (!can_be_written(format)) {
    throw failure(errc::internal, std::string("weights cannot be written as ") + to_string(format));
  } else {
    weight_group groups[most_block / group_inputs];
    float weights[most_block];
    const auto inputs = block_inputs(format);
    for (std::size_t i = 0; i < cols; i += inputs) {
      if (format == weight_format::q8_0) { // where a search gains nothing
        *groups = kernels::quantise_int8(row + i);
      } else {
        weigh_errors(row + i, importance ? importance + i : nullptr, inputs, weights);
        fit_block(format, row + i, weights, groups);
      }
      store_groups(format, groups, bytes + row_bytes(format, i));
    }
  }
}

} // namespace troupe
