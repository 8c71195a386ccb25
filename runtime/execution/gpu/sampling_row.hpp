// Converts sampling parameters to those of the device's kernel.
#pragma once

#include "kernels/cuda/device/sampling.hpp"
#include "runtime/sampling/sampling_params.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

/// Leaves lists, and fields that depend on the sequence, at their defaults.
inline kernels::cuda::sampling_row sampling_row_of(const sampling_params& p) {
  kernels::cuda::sampling_row row;
  row.greedy = p.greedy();
  row.inverse_temperature = p.greedy() ? 1 : 1 / p.temperature;
  row.top_k = p.top_k;
  row.top_p = static_cast<std::uint64_t>(std::llround(double(p.top_p) * 0x1p32));
  row.min_p = p.min_p;
  row.repetition_penalty = p.repetition_penalty;
  row.presence_penalty = p.presence_penalty;
  row.frequency_penalty = p.frequency_penalty;
  row.seed = p.seed;
  row.logprobs = p.wants_logprobs() ? std::max(p.logprobs, 0) : -1;
  return row;
}

} // namespace troupe
