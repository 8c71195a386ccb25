// How sequences are divided into microbatches, and that steps of one wait for no other.
#include "runtime/scheduling/cost/microbatch_policy.hpp"
#include "tests/runtime/scheduling/scheduler_machine.hpp"

#include <cmath>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// Steps that take `fixed` ms, as reading the weights does, and `row` ms for each row.
step_cost cost_of(double fixed, double row) {
  step_cost cost;
  for (int i = 0; i < 400; ++i)
    for (const int rows : {1, 2, 4, 8, 16, 32, 64})
      cost.observe({static_cast<double>(rows), static_cast<double>(rows), 0, 0}, fixed + row * rows);
  return cost;
}

std::int32_t chosen(const step_cost& cost, int sequences, const std::vector<double>& stage_ms, double choosing_ms = 0,
                    bool prompts = false) {
  microbatch_policy policy(static_cast<std::int32_t>(stage_ms.size()), 0);
  const auto ms = std::reduce(stage_ms.begin(), stage_ms.end()) + choosing_ms;
  for (int i = 0; i < 200; ++i)
    policy.finished(ms, stage_ms);
  const auto rows = static_cast<double>(sequences);
  for (int i = 0; i < 3; ++i) // it settles
    policy.decide(cost, {rows, rows, 0, 0}, sequences, prompts);
  return policy.count();
}

/// Runs until nothing waits and all sequences decode; then makes the plans that can be made.
std::vector<std::shared_ptr<const step_plan>> plans_in_flight(scheduler& s, block_manager& blocks) {
  std::vector<std::shared_ptr<const step_plan>> plans;
  while (s.wants_step()) {
    scheduler::next next = s.begin_step();
    while (auto* request = std::get_if<block_request>(&next))
      next = s.granted(blocks.serve(*request));
    if (auto* plan = std::get_if<std::shared_ptr<const step_plan>>(&next))
      plans.push_back(*plan);
  }
  return plans;
}

step_result result_of(const step_plan& plan) {
  step_result result;
  result.step = plan.step;
  for (const auto& d : plan.samples) {
    sampled_token token;
    token.id = 20;
    result.sampled.push_back({d.sequence, d.slot, token});
  }
  return result;
}

} // namespace

TEST_CASE("one stage has one microbatch, and a fixed number is kept") {
  CHECK(microbatch_policy(1, 0).count() == 1);
  CHECK(microbatch_policy(1, 5).count() == 1);
  microbatch_policy three(2, 3);
  CHECK(three.count() == 3);
  three.decide(cost_of(1, 1), {8, 8, 0, 0}, 8, false);
  CHECK(three.count() == 3);
}

TEST_CASE("there are as many microbatches as keep the stages busy, by what steps cost") {
  const auto by_rows = cost_of(1, 1), by_weights = cost_of(100, 0.01);
  CHECK(chosen(by_rows, 16, {1, 1}) == 2);
  CHECK(chosen(by_rows, 16, {1, 1, 1, 1}) == 4);
  CHECK(chosen(by_rows, 1, {1, 1}) == 1);
  // Choosing tokens is a stage, too, in effect.
  CHECK(chosen(by_rows, 16, {1, 1}, 0.5) == 3);
  // Where the weights are what takes time, reading them twice gains nothing, and for a slowest stage it costs.
  CHECK(chosen(by_weights, 16, {4, 1}) == 1);
  CHECK(chosen(by_weights, 16, {1, 1}) == 1);
  // Prompts do not wait for the tokens of all others.
  CHECK(chosen(by_weights, 16, {1, 1}, 0, true) == 2);
  CHECK(chosen(by_rows, 1, {1, 1, 1}, 0, true) == 3);
  // Without sequences that decode, prompts pass through all stages.
  CHECK(chosen(by_rows, 0, {4, 1}) == 2);
}

TEST_CASE("microbatches are equal, and a plan waits for the tokens of its own") {
  scheduler_limits limits{512, 8, 100, 2};
  limits.stages = 2;
  scheduler s(limits);
  block_manager blocks(100, false);
  for (std::uint64_t id = 1; id <= 6; ++id) {
    auto a = make(id, {static_cast<token_id>(10 + id)}, 100);
    REQUIRE_FALSE(s.submit(a).has_value());
  }
  std::deque<std::shared_ptr<const step_plan>> in_flight;
  std::uint64_t last[2] = {0, 0};
  for (int i = 0; i < 40; ++i) {
    for (auto& plan : plans_in_flight(s, blocks))
      in_flight.push_back(std::move(plan));
    REQUIRE(in_flight.size() <= 3); // one in each stage, and one that waits for its tokens
    if (i > 20) {
      CHECK(in_flight.size() == 3);
      for (const auto& plan : in_flight) {
        CHECK(plan->tokens.size() == 3);
        const auto of = plan->step % 2;
        CHECK(plan->after_tokens_of <= plan->step - 2);
        last[of] = plan->step;
      }
    }
    const auto done = in_flight.front();
    in_flight.pop_front();
    s.finished(result_of(*done));
  }
  CHECK(last[0] > 0);
  CHECK(last[1] > 0);
}

TEST_CASE("chunks of one prompt follow each other through the stages") {
  scheduler_limits limits{16, 8, 100, 2};
  limits.stages = 3;
  scheduler s(limits);
  block_manager blocks(100, false);
  REQUIRE_FALSE(s.submit(make(1, std::vector<token_id>(160, 11), 3)).has_value());
  const auto plans = plans_in_flight(s, blocks);
  REQUIRE(plans.size() == 4);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    CHECK(plans[i]->tokens.size() == 16);
    CHECK(plans[i]->sequences.at(0).first_position == static_cast<std::int32_t>(16 * i));
    CHECK(plans[i]->after_tokens_of == 0);
  }
}
