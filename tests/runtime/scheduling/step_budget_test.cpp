#include "runtime/scheduling/cost/step_budget.hpp"
#include "runtime/scheduling/cost/step_times.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

using namespace troupe;

namespace {

/// A machine whose steps take 20 ms, or 0.5 ms for each row and position if that is more.
double time_on_knee(const step_shape& s) { return std::max(20.0, 0.5 * s.rows) + 0.001 * s.attended; }

/// What is known after many prompts of `rows` rows and less.
step_cost known_to(int rows) {
  step_cost cost;
  for (int i = 0; i < 100; ++i)
    for (int r = 1; r <= rows; r *= 2)
      cost.observe(shape_of(16 * i, r, 1), time_on_knee(shape_of(16 * i, r, 1)));
  return cost;
}

} // namespace

TEST_CASE("a fixed budget is the same whatever steps cost") {
  step_budget budget({100, false, 0});
  for (const auto& cost : {step_cost(), known_to(512)}) {
    CHECK(budget.rows(cost) == 100);
    budget.begin(cost);
    CHECK(budget.room(cost, 0, 70) == 70);
    budget.demand(0, 70, true);
    CHECK(budget.room(cost, 0, 70) == 30);
    budget.settle(); // of those, none was granted
    CHECK(budget.room(cost, 0, 70) == 70);
    budget.grant(0, 10, false);
    budget.settle();
    CHECK(budget.room(cost, 0, 1000) == 90);
  }
}

TEST_CASE("a measured budget grows by doubling, and stops at the fewest rows that are efficient") {
  step_budget budget({1024, true, 0});
  step_cost cost;
  CHECK(budget.rows(cost) == 32);
  int largest = 0;
  for (int i = 0; i < 200; ++i) {
    const auto rows = budget.rows(cost);
    CHECK(rows <= std::max(32, 2 * largest));
    largest = std::max(largest, rows);
    cost.observe(shape_of(0, rows, 1), time_on_knee(shape_of(0, rows, 1)));
  }
  // 40 rows are the first that take longer than one. Beyond them the rate is the same: 36 have 90 % of it.
  CHECK(cost.efficient_rows(1024) >= 30);
  CHECK(cost.efficient_rows(1024) <= 128);
  CHECK(largest <= 256);
  CHECK(step_budget({24, true, 0}).rows(cost) <= 24);
  CHECK(step_budget({8, true, 0}).rows(cost) == 8);
}

TEST_CASE("a measured budget grows beyond a thousand rows where the first row costs as much as hundreds") {
  // Expanding weights takes 10 ms, a row 0.027 ms: 1024 rows have 73 % of the best rate, 4096 have 92 %, and
  // the fewest with nine tenths of what those have are 1760.
  const auto time = [](double rows) { return 10 + 0.027 * rows; };
  const auto settled = [&](int most) {
    step_budget budget({most, true, 0});
    step_cost cost;
    for (int i = 0; i < 1000; ++i) {
      budget.begin(cost);
      const auto rows = budget.room(cost, 0, 8192);
      budget.grant(0, rows, true);
      cost.observe({double(rows), 0, 0, 0}, time(rows));
    }
    return cost.efficient_rows(most);
  };
  CHECK(settled(8192) >= 1400);
  CHECK(settled(8192) < 8192);
  CHECK(settled(1024) <= 1024);
}

TEST_CASE("while no sequence decodes, larger steps compute prompts faster") {
  const auto time = [](double rows) { return 10 + 0.2 * rows; };
  step_cost cost;
  for (int rows = 1; rows <= 1024; rows *= 2)
    for (int i = 0; i < 20; ++i)
      cost.observe({double(rows), 0, 0, 0}, time(rows));
  step_budget budget({1024, true, 0});
  const auto rate_of = [&](bool decoding) {
    budget.begin(cost, decoding);
    const auto rows = budget.room(cost, 0, 8192);
    budget.grant(0, rows, true);
    return rows / time(rows) / (1024 / time(1024));
  };
  CHECK(rate_of(true) >= 0.88);
  CHECK(rate_of(true) < 0.93);
  CHECK(rate_of(false) >= 0.96);
  CHECK(rate_of(false) < 1);
}

TEST_CASE("a size that was slow by chance is tried again") {
  step_budget budget({1024, true, 0});
  step_cost cost;
  const auto time = [](int rows) { return 20 + 0.2 * rows; }; // larger steps are more efficient
  for (int rows = 1; rows <= 64; rows *= 2)
    for (int i = 0; i < 20; ++i)
      cost.observe({double(rows), 0, 0, 0}, rows == 64 ? 300 : time(rows));
  REQUIRE(cost.efficient_rows(1024) < 64);
  for (int i = 0; i < 3000; ++i) {
    budget.begin(cost);
    const auto rows = budget.room(cost, 0, 2000);
    budget.grant(0, rows, true);
    cost.observe({double(rows), 0, 0, 0}, time(rows));
  }
  CHECK(cost.efficient_rows(1024) >= 128);
}

TEST_CASE("prompts get the rows that end within the target, after those that decode") {
  const auto cost = known_to(512);
  step_budget budget({1024, false, 30});
  budget.begin(cost);
  const auto alone = budget.room(cost, 0, 1000);
  CHECK(alone >= 32);
  CHECK(time_on_knee(shape_of(0, alone, 1)) < 33);
  for (int i = 0; i < 20; ++i)
    budget.demand(100, 1, false);
  const auto beside = budget.room(cost, 0, 1000);
  CHECK(beside <= alone - 15);
  CHECK(beside >= step_budget::least_prompt_rows);
  CHECK(step_budget({1024, true, 5}).rows(cost) == step_budget({1024, true, 0}).rows(cost)); // bounds each step

  step_budget late({1024, false, 60});
  late.begin(cost);
  CHECK(late.room(cost, 2000, 1000) < late.room(cost, 0, 1000)); // context takes time as well
}

TEST_CASE("a noisy machine keeps the target, too") {
  step_budget budget({1024, false, 100});
  step_cost cost;
  std::mt19937 random(1);
  std::normal_distribution<double> noise(1, 0.15);
  int late = 0, rows = 0;
  for (int i = 0; i < 1000; ++i) {
    budget.begin(cost);
    budget.grant(100, 1, false);
    budget.settle();
    const auto room = budget.room(cost, 0, 1000);
    const auto shape = shape_of(100, 1, 1) + shape_of(0, room, 1);
    const auto ms = time_on_knee(shape) * std::max(0.5, noise(random));
    cost.observe(shape, ms);
    if (i >= 100) {
      late += ms > 100;
      rows += room;
    }
  }
  CHECK(late < 0.05 * 900);      // more than half of them, if it aimed at the target itself
  CHECK(rows > 900 * 200 * 0.5); // of 200 that would just end in time
}

TEST_CASE("prompts get some rows even if the step is too long already, but once a step") {
  const auto cost = known_to(512);
  step_budget budget({1024, true, 5});
  budget.begin(cost);
  for (int i = 0; i < 64; ++i)
    budget.demand(100, 1, false);
  CHECK(budget.room(cost, 0, 1000) == 16);
  CHECK(budget.room(cost, 0, 3) == 3);
  budget.demand(0, 10, true);
  CHECK(budget.room(cost, 0, 1000) == 6);
  budget.demand(0, 6, true);
  CHECK(budget.room(cost, 0, 1000) == 0);
  budget.settle();
  CHECK(budget.room(cost, 0, 1000) == 16);

  step_budget narrow({66, true, 5}); // memory is planned for no more
  narrow.begin(cost);
  for (int i = 0; i < 64; ++i)
    narrow.demand(100, 1, false);
  CHECK(narrow.room(cost, 0, 1000) == 2);
}

TEST_CASE("with a target, few rows of a prompt run until a step was measured") {
  step_budget budget({1024, false, 30});
  const step_cost nothing;
  budget.begin(nothing);
  CHECK(budget.room(nothing, 0, 1000) == 16);
}

TEST_CASE("the log hears of the budget once it has settled, and when it changes") {
  step_budget budget({1024, true, 0}), fixed({1024, false, 0});
  step_cost cost;
  std::vector<std::string> lines;
  const auto run = [&](int steps, double slowness) {
    for (int i = 0; i < steps; ++i) {
      const auto rows = budget.rows(cost);
      cost.observe(shape_of(0, rows, 1), slowness * time_on_knee(shape_of(0, rows, 1)));
      CHECK(fixed.news(cost).empty());
      if (auto line = budget.news(cost); !line.empty())
        lines.push_back(std::move(line));
    }
  };
  run(31, 1);
  CHECK(lines.empty());
  run(1500, 1);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].starts_with("steps of up to "));
  CHECK(lines[0].find(" ms for 64") != std::string::npos);
  run(1000, 3);
  CHECK(lines.size() >= 2);
  CHECK(lines.size() <= 3);
}

// -- step_times -------------------------------------------------------------------------------------------------------

namespace {

using std::chrono::milliseconds;

constexpr step_times::time_point noon{std::chrono::hours(12)};

step_plan timed_plan(std::uint64_t number, std::int32_t rows) {
  step_plan p;
  p.step = number;
  p.tokens.resize(static_cast<std::size_t>(rows));
  p.sequences = {{0, rows, 0, 0}};
  return p;
}

step_result timed_result(std::uint64_t number, double ms = 0) {
  step_result r;
  r.step = number;
  r.ms = ms;
  return r;
}

} // namespace

TEST_CASE("a step takes as long as its result says") {
  step_times times;
  times.planned(timed_plan(1, 7), noon);
  const auto found = times.finished(timed_result(1, 3.5), noon + milliseconds(100));
  REQUIRE(found.has_value());
  CHECK(found->ms == 3.5);
  CHECK(found->shape.rows == 7);
}

TEST_CASE("without a time, a step that was planned ahead is timed from the end of the one before it") {
  step_times times;
  times.planned(timed_plan(1, 1), noon);
  times.planned(timed_plan(2, 2), noon + milliseconds(1));
  CHECK(times.finished(timed_result(1), noon + milliseconds(50))->ms == doctest::Approx(50));
  CHECK(times.finished(timed_result(2), noon + milliseconds(60))->ms == doctest::Approx(10));
  times.planned(timed_plan(3, 3), noon + milliseconds(1000)); // after idle time, from its own start
  CHECK(times.finished(timed_result(3), noon + milliseconds(1020))->ms == doctest::Approx(20));
}

TEST_CASE("results that are missing or not known are no reason for a wrong time") {
  step_times times;
  CHECK_FALSE(times.finished(timed_result(1), noon).has_value());
  times.planned(timed_plan(2, 2), noon);
  times.planned(timed_plan(3, 3), noon + milliseconds(1));
  CHECK(times.finished(timed_result(3), noon + milliseconds(10))->shape.rows == 3);
  CHECK_FALSE(times.finished(timed_result(2), noon + milliseconds(11)).has_value());
}
