// What a prompt's attention loads on a GPU, by its plan.
#pragma once

#include "kernels/cuda/attention_plan.hpp"
#include "tests/kernels/attention_traffic.hpp"

#include <vector>

namespace troupe::kernels::testing {

/// Scores beyond a row's own end count, as they are computed with the tile's.
inline tile_counts on_gpu(const prompt_shape& s) {
  const sequence_rows prompt{0, s.tokens, 0, 0};
  const std::vector<std::int32_t> table(std::size_t(s.tokens) / block_tokens, 0);
  cuda::attention_options options;
  options.flash = true;
  options.kv_heads = 16;
  const auto plan = cuda::plan_attention({{&prompt, 1}, table}, options);
  tile_counts counts;
  for (const auto& work : plan.flash) {
    const double end = plan.rows[std::size_t(plan.list[std::size_t(work.first + work.packed + work.count - 1)])].end;
    counts.rows += work.count;
    counts.kv += end;
    counts.scores += work.count * end;
  }
  return counts;
}

} // namespace troupe::kernels::testing
