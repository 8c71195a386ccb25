// The scheduler on a machine whose steps take time: which steps it plans once it knows what they cost.
#include "tests/runtime/scheduling/scheduler_machine.hpp"

#include <cmath>

using namespace troupe;
using namespace troupe::testing;

namespace {

struct timed_step {
  int decoding = 0, of_prompts = 0;
  double ms = 0;
};

/// Runs short prompts that decode for long beside long prompts; returns every step. Steps take as long as 40 rows, or
/// 1 ms for each row, and 2 us for each position attended.
std::vector<timed_step> run_long_prompts(scheduler_limits limits, int long_prompts = 12) {
  machine m(2000, false, limits);
  std::vector<timed_step> steps;
  std::mt19937 chance(1);
  m.time = [&](const step_plan& plan) {
    timed_step step;
    for (const auto& s : plan.sequences)
      (s.rows == 1 ? step.decoding : step.of_prompts) += s.rows;
    const auto shape = shape_of(plan);
    step.ms = std::exp(std::normal_distribution<>(0, 0.03)(chance)) *
      (std::max(40.0, shape.rows) + 0.002 * shape.attended);
    steps.push_back(step);
    return step.ms;
  };
  std::vector<submission> all;
  for (std::uint64_t id = 1; id <= 4; ++id)
    submit(m, all.emplace_back(make(id, {static_cast<token_id>(100 + id)}, 400)));
  for (int i = 0; i < 20; ++i)
    m.plan(), m.execute(), m.book();
  for (int i = 0; i < long_prompts; ++i) {
    std::vector<token_id> prompt(600);
    for (auto& t : prompt)
      t = static_cast<token_id>(10 + chance() % 900);
    submit(m, all.emplace_back(make(static_cast<std::uint64_t>(10 + i), std::move(prompt), 2)));
    for (int k = 0; k < 8; ++k)
      m.plan(), m.execute(), m.book();
  }
  m.drain();
  for (const auto& a : all)
    check_transcripts(m, a);
  return steps;
}

double longest_step(const std::vector<timed_step>& steps, std::size_t from) {
  double ms = 0;
  for (std::size_t i = from; i < steps.size(); ++i)
    ms = std::max(ms, steps[i].ms);
  return ms;
}

} // namespace

TEST_CASE("with a target, steps end within it and still take rows of prompts") {
  for (const bool measured : {true, false}) {
    CAPTURE(measured);
    scheduler_limits limits{512, 8, 100, 2};
    limits.measured_budget = measured;
    limits.step_target_ms = 80;
    const auto steps = run_long_prompts(limits);
    CHECK(longest_step(steps, 0) < 80 * 1.6); // while it learns
    CHECK(longest_step(steps, 60) < 80 * 1.15);
    int of_prompts = 0, with_prompts = 0;
    for (std::size_t i = 60; i < steps.size(); ++i) {
      of_prompts += steps[i].of_prompts;
      with_prompts += steps[i].of_prompts > 20;
    }
    CHECK(with_prompts > 20);
    CHECK(of_prompts > 25 * with_prompts);
  }
  CHECK(longest_step(run_long_prompts({512, 8, 100, 2}), 0) > 400); // without one, they take as long as they take
}

TEST_CASE("a measured budget reaches nearly the speed of large steps with short ones") {
  const scheduler_limits large{512, 8, 100, 2};
  auto measured = large;
  measured.measured_budget = true;
  const auto rows_per_ms = [](const std::vector<timed_step>& steps) {
    double rows = 0, ms = 0;
    for (const auto& s : steps)
      if (s.of_prompts > 16) {
        rows += s.decoding + s.of_prompts;
        ms += s.ms;
      }
    return rows / ms;
  };
  const auto few = run_long_prompts(measured), many = run_long_prompts(large);
  CHECK(longest_step(few, 0) < longest_step(many, 0) / 3);
  CHECK(rows_per_ms(few) > 0.85 * rows_per_ms(many));
}

TEST_CASE("a target that no step can meet lets every sequence decode in every step, and prompts go on") {
  scheduler_limits limits{512, 8, 100, 2};
  limits.measured_budget = true;
  limits.step_target_ms = 1;
  const auto steps = run_long_prompts(limits, 4);
  for (const auto& s : steps)
    CHECK(s.of_prompts <= step_budget::least_prompt_rows);
  CHECK(std::ranges::count_if(steps, [](auto& s) { return s.of_prompts == step_budget::least_prompt_rows; }) >
        4 * 600 / step_budget::least_prompt_rows - 8);
}
