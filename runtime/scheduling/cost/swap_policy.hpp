// Decides whether swapping K/V to host memory pays: the cost of moving a block back, at rates measured on the device,
// against the cost of recomputing it, as recent steps show it.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"
#include "runtime/scheduling/step.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// Rates of moves between device and host memory in bytes per second, measured with blocks of this size. Zero: no
/// swapping.
struct swap_rates {
  std::size_t block_bytes = 0;
  double to_host = 0, to_device = 0;
};

/// Milliseconds in which a step of so many rows computes a block of a prompt. 0 before that many were measured.
double recompute_ms(const step_cost& cost, std::int32_t step_rows);

/// `step_rows`: rows of a step in which blocks would be recomputed. No swapping before a block's rows were measured.
/// Attention makes tokens at the end of a long prompt cost more than these, so that swapping in pays slightly more
/// often than decided here.
swap_decision decide_swap(const swap_rates& rates, const step_cost& cost, std::int32_t step_rows);

} // namespace troupe
