#include "runtime/scheduling/cost/swap_policy.hpp"

#include <algorithm>

namespace troupe {

double recompute_ms(const step_cost& cost, std::int32_t step_rows) {
  constexpr auto block = kernels::block_tokens;
  if (cost.most_rows() < block)
    return 0;
  const auto rows = std::max(step_rows, block);
  return cost.expected_ms(shape_of(0, rows, 0)) * block / rows;
}

swap_decision decide_swap(const swap_rates& rates, const step_cost& cost, std::int32_t step_rows) {
  if (rates.block_bytes == 0 || rates.to_host <= 0 || rates.to_device <= 0 || cost.most_rows() < kernels::block_tokens)
    return {};
  const auto computed_ms = recompute_ms(cost, step_rows);
  const auto bytes = static_cast<double>(rates.block_bytes);
  const auto out_ms = 1e3 * bytes / rates.to_host, in_ms = 1e3 * bytes / rates.to_device;
  return {.swap_out = out_ms + in_ms < computed_ms, .swap_in = in_ms < computed_ms};
}

} // namespace troupe
