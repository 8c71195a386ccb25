#include "runtime/scheduling/swap_policy.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

using std::chrono::milliseconds;

constexpr swap_policy::time_point start{std::chrono::hours(1)};

/// One sequence of `rows` rows, and `decoding` of one row each.
step_plan plan(std::uint64_t step, std::int32_t rows, std::int32_t decoding = 0) {
  step_plan p;
  p.step = step;
  p.tokens.resize(static_cast<std::size_t>(rows + decoding));
  if (rows > 0)
    p.sequences.push_back({.first_row = 0, .rows = rows});
  for (std::int32_t i = 0; i < decoding; ++i)
    p.sequences.push_back({.first_row = rows + i, .rows = 1});
  return p;
}

/// Swapping a block out and in takes 1 ms each.
constexpr swap_rates millisecond_moves{1'000'000, 1e9, 1e9};

swap_decision after_prefill(swap_rates rates, milliseconds of_1000_tokens) {
  swap_policy policy(rates);
  policy.planned(plan(1, 1000), start);
  policy.finished(1, start + of_1000_tokens);
  return policy.decide();
}

} // namespace

TEST_CASE("blocks are swapped out if both moves together cost less than recomputing, and in if one does") {
  CHECK(after_prefill(millisecond_moves, milliseconds(130)).swap_out); // 16 tokens in 2.08 ms
  CHECK(after_prefill(millisecond_moves, milliseconds(130)).swap_in);
  CHECK_FALSE(after_prefill(millisecond_moves, milliseconds(120)).swap_out); // 1.92 ms
  CHECK(after_prefill(millisecond_moves, milliseconds(120)).swap_in);
  CHECK_FALSE(after_prefill(millisecond_moves, milliseconds(60)).swap_in);  // 0.96 ms
  CHECK(after_prefill({1'000'000, 1e10, 1e9}, milliseconds(120)).swap_out); // 0.1 ms to the host, 1 ms back
}

TEST_CASE("without rates or without a measured prefill nothing is swapped out or swapped in") {
  CHECK_FALSE(after_prefill({}, milliseconds(1000)).swap_out);
  CHECK_FALSE(after_prefill({}, milliseconds(1000)).swap_in);
  swap_policy policy(millisecond_moves);
  CHECK_FALSE(policy.prefill_seconds().has_value());
  CHECK_FALSE(policy.decide().swap_out);
  CHECK_FALSE(policy.decide().swap_in);
}

TEST_CASE("steps that mostly decode, and tiny ones, do not count as prefill") {
  swap_policy policy(millisecond_moves);
  policy.planned(plan(1, 20, 20), start);
  policy.finished(1, start + milliseconds(1000));
  policy.planned(plan(2, 0, 64), start + milliseconds(1000));
  policy.finished(2, start + milliseconds(2000));
  policy.planned(plan(3, 15), start + milliseconds(2000));
  policy.finished(3, start + milliseconds(3000));
  CHECK_FALSE(policy.prefill_seconds().has_value());
  policy.planned(plan(4, 21, 20), start + milliseconds(3000));
  policy.finished(4, start + milliseconds(3041));
  CHECK(policy.prefill_seconds() == doctest::Approx(0.001));
}

TEST_CASE("a step that was planned ahead is timed from the end of the one before it, decoding or not") {
  swap_policy policy(millisecond_moves);
  policy.planned(plan(1, 0, 3), start);
  policy.planned(plan(2, 100), start + milliseconds(1));
  policy.finished(1, start + milliseconds(50));
  policy.finished(2, start + milliseconds(60));
  CHECK(policy.prefill_seconds() == doctest::Approx(0.0001));
  // After idle time, from its own start.
  policy = swap_policy(millisecond_moves);
  policy.planned(plan(1, 100), start);
  policy.finished(1, start + milliseconds(10));
  policy.planned(plan(2, 100), start + milliseconds(1000));
  policy.finished(2, start + milliseconds(1010));
  CHECK(policy.prefill_seconds() == doctest::Approx(0.0001));
}

TEST_CASE("the estimate follows a device that becomes slower, without jumping") {
  swap_policy policy(millisecond_moves);
  auto now = start;
  std::uint64_t step = 0;
  const auto run = [&](int times, milliseconds of_100_tokens) {
    for (int i = 0; i < times; ++i) {
      policy.planned(plan(++step, 100), now);
      now += of_100_tokens;
      policy.finished(step, now);
    }
    return *policy.prefill_seconds();
  };
  CHECK(run(20, milliseconds(10)) == doctest::Approx(0.0001));
  CHECK(run(1, milliseconds(100)) < 0.0003);
  CHECK(run(40, milliseconds(100)) == doctest::Approx(0.001).epsilon(0.05));
}
