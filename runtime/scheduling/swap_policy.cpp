#include "runtime/scheduling/swap_policy.hpp"

#include <algorithm>

namespace troupe {

swap_decision decide_swap(const swap_rates& rates, const step_cost& cost, std::int32_t step_rows) {
  constexpr auto block = kernels::block_tokens;
  if (rates.block_bytes == 0 || rates.to_host <= 0 || rates.to_device <= 0 || cost.most_rows() < block)
    return {};
  const auto rows = std::max(step_rows, block);
  const auto recompute_ms = cost.expected_ms(shape_of(0, rows, 0)) * block / rows;
  const auto bytes = static_cast<double>(rates.block_bytes);
  const auto out_ms = 1e3 * bytes / rates.to_host, in_ms = 1e3 * bytes / rates.to_device;
  return {.swap_out = out_ms + in_ms < recompute_ms, .swap_in = in_ms < recompute_ms};
}

} // namespace troupe
