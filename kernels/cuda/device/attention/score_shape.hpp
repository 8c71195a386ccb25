// What attention does to scores besides their softmax: soft caps, ALiBi's slopes, numbers of distances, sinks. Scores are
// exponents of two. Only for kernels.
#pragma once

#include "kernels/cuda/device/activations.hpp"
#include "kernels/cuda/device/attention/attention.hpp"

namespace troupe::kernels::cuda {

TROUPE_DEVICE bool is_shaped(const attention_params& p) { return p.cap > 0 || p.slopes != nullptr; }

TROUPE_DEVICE float slope_of(const attention_params& p, int head) {
  return p.slopes != nullptr ? exponent(p.slopes[head]) : 0;
}

/// `distance`: of the key's position from the query's.
TROUPE_DEVICE float shaped_score(const attention_params& p, float score, float slope, int distance) {
  if (p.cap > 0)
    score = p.cap * tanh_of(score / p.cap);
  return simt::fused(slope, static_cast<float>(distance), score);
}

/// What a key so far behind adds to the score of a row's head.
TROUPE_DEVICE float distance_score(const distance_numbers& from, std::int32_t row, int head, int distance) {
  if (distance < 0 || distance >= from.extent)
    return 0;
  const float* mix = from.mixes + row * from.mix_stride + std::size_t(head) * from.width;
  const float* numbers = from.table - distance;
  float sum = 0;
  for (int i = 0; i < from.width; ++i)
    sum = simt::fused(mix[i], numbers[i * from.stride], sum);
  return exponent(sum);
}

/// What a row's sum of values, relative to m, is multiplied by: 1 / l, where a sink has added its exponential to l.
TROUPE_DEVICE float share_of_values(const attention_params& p, int head, float m, float l) {
  if (p.sinks == nullptr)
    return 1 / l;
  const float sink = exponent(p.sinks[head]), highest = simt::larger(m, sink);
  const float keep = simt::exp2(m - highest);
  return keep / simt::fused(l, keep, simt::exp2(sink - highest));
}

} // namespace troupe::kernels::cuda
