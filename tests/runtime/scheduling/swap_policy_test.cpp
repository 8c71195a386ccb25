#include "runtime/scheduling/cost/swap_policy.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

/// Swapping a block out and in takes 1 ms each.
constexpr swap_rates millisecond_moves{1'000'000, 1e9, 1e9};

/// After steps of `rows` rows that took `ms`.
step_cost cost_after(double ms, std::int32_t rows) {
  step_cost cost;
  for (int i = 0; i < 20; ++i)
    cost.observe(shape_of(0, rows, 0), ms);
  return cost;
}

} // namespace

TEST_CASE("blocks are swapped out if both moves together cost less than recomputing, and in if one does") {
  const auto decide = [](double ms) { return decide_swap(millisecond_moves, cost_after(ms, 512), 512); };
  CHECK(decide(71).swap_out); // 16 rows in 2.2 ms
  CHECK(decide(71).swap_in);
  CHECK_FALSE(decide(58).swap_out); // 1.8 ms
  CHECK(decide(58).swap_in);
  CHECK_FALSE(decide(29).swap_in);                                               // 0.9 ms
  CHECK(decide_swap({1'000'000, 1e10, 1e9}, cost_after(58, 512), 512).swap_out); // 0.1 ms to the host, 1 ms back
}

TEST_CASE("blocks are worth what they cost in a step of many rows") {
  step_cost cost;
  for (int i = 0; i < 50; ++i)
    for (const auto rows : {1, 16, 64, 256})
      cost.observe(shape_of(0, rows, 0), 20 + 0.03 * rows);
  CHECK(decide_swap(millisecond_moves, cost, 16).swap_out);
  CHECK_FALSE(decide_swap(millisecond_moves, cost, 256).swap_out); // 16 of the rows take 1.7 ms
}

TEST_CASE("without rates, or before a block's rows were measured, nothing is swapped") {
  const auto nothing = [](const swap_rates& rates, const step_cost& cost) {
    const auto d = decide_swap(rates, cost, 512);
    return !d.swap_out && !d.swap_in;
  };
  CHECK(nothing({}, cost_after(1000, 512)));
  CHECK(nothing({1'000'000, 0, 1e9}, cost_after(1000, 512)));
  CHECK(nothing(millisecond_moves, {}));
  CHECK(nothing(millisecond_moves, cost_after(1000, 15)));
  CHECK_FALSE(nothing(millisecond_moves, cost_after(1000, 16)));
}
