// What is expected of steps stays within bounds of what was observed, over long streams of one kind and of any kind.
#include "runtime/scheduling/cost/step_cost.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

using namespace troupe;

namespace {

double expected_of(const step_cost& cost, double rows) { return cost.expected_ms({rows, 0, 0, 0}); }

/// A machine at random, and a load of few rows on it that never changes.
struct lasting_load {
  explicit lasting_load(unsigned seed) : chance(seed) {
    const auto between = [&](double low, double high) {
      return std::exp(std::uniform_real_distribution<>(std::log(low), std::log(high))(chance));
    };
    noise = between(0.02, 0.6);
    weights_ms = between(0.4, 50);
    row_ms = weights_ms / between(1, 50);
    attended_ms = row_ms * between(1e-4, 0.02);
    context = pick(1, 8000);
    most_rows = 1 << pick(0, 3);
    batch = 1 << pick(0, 2);
  }

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(chance); }
  double time(const step_shape& s) {
    const auto exact = std::max(weights_ms, 0.3 * weights_ms + row_ms * s.rows) + attended_ms * s.attended;
    return exact * std::exp(std::normal_distribution<>(0, noise)(chance));
  }
  void run(step_cost& cost, const step_shape& step) { cost.observe(step, time(step)); }
  void run_prompts(step_cost& cost) {
    for (int prompt = 0; prompt < 3; ++prompt)
      for (int position = 0; position < 6000; position += 256)
        run(cost, shape_of(position, 256, 0));
  }
  void run_answers(step_cost& cost, int steps) {
    for (int i = 0; i < steps; ++i) {
      step_shape all;
      for (int k = 0; k < batch; ++k)
        all += shape_of((4 + i + 37 * k) % context, pick(1, most_rows), 1);
      run(cost, all);
    }
  }

  std::mt19937 chance;
  double noise, weights_ms, row_ms, attended_ms;
  int context, most_rows, batch;
};

void check_sense(const step_cost& cost, double least_ms, double most_ms) {
  for (const auto rows : step_cost::knots) {
    CAPTURE(rows);
    const auto ms = expected_of(cost, rows);
    CHECK(std::isfinite(ms));
    CHECK(ms >= least_ms / 100 / step_cost::knots.back());
    CHECK(ms <= most_ms * 100 * rows);
    CHECK(std::isfinite(cost.expected_ms(shape_of(100000, rows, rows))));
    CHECK(cost.expected_ms(shape_of(100000, rows, rows)) >= ms * (1 - 1e-9));
  }
  CHECK(std::isfinite(cost.summary().error));
  const auto rows = cost.efficient_rows(512);
  CHECK(rows >= 1);
  CHECK(rows <= 512);
}

} // namespace

TEST_CASE("a load of few rows, however long, carries no estimate of many rows away") {
  for (const unsigned seed : {0, 10, 22, 41, 52, 53}) {
    CAPTURE(seed);
    lasting_load load(seed);
    step_cost cost;
    load.run_prompts(cost);
    load.run_answers(cost, 200);
    const auto proportion = [&] { return expected_of(cost, 256) / expected_of(cost, load.batch); };
    const auto before = proportion();
    load.run_answers(cost, 40000);
    CHECK(proportion() < 6 * before);
    CHECK(proportion() > before / 6);
    load.run_prompts(cost);
    load.run_prompts(cost);
    const auto prompt = shape_of(3000, 256, 0);
    CHECK(cost.expected_ms(prompt) > load.time(prompt) / 3);
    CHECK(cost.expected_ms(prompt) < 3 * load.time(prompt));
  }
}

TEST_CASE("short prompts between long answers carry no estimate away either") {
  for (const unsigned seed : {0, 1, 3, 5, 12}) {
    CAPTURE(seed);
    lasting_load load(seed);
    step_cost cost;
    load.run_prompts(cost);
    const auto answers = [&](int count) {
      for (int i = 0; i < count; ++i) {
        load.run(cost, shape_of(0, 5, 1));
        for (int position = 5; position < 2000; ++position)
          load.run(cost, shape_of(position, 1, 1));
      }
    };
    answers(3);
    const auto proportion = [&] { return expected_of(cost, 256) / expected_of(cost, 1); };
    const auto before = proportion();
    answers(30);
    CHECK(proportion() < 6 * before);
    CHECK(proportion() > before / 6);
  }
}

TEST_CASE("a machine that is slow and fast in turn, or stands still at times, carries no estimate away") {
  for (const int habit : {0, 1, 2, 3}) {
    CAPTURE(habit);
    lasting_load load(7);
    load.noise = 0.1;
    step_cost cost;
    load.run_prompts(cost);
    const auto step = shape_of(300, 1, 1);
    for (int i = 0; i < 200; ++i)
      load.run(cost, step);
    const auto before = expected_of(cost, 256) / expected_of(cost, 1);
    for (int i = 0; i < 40000; ++i) {
      const bool slow = habit == 0 ? i % 50 == 0 : habit == 1 ? i % 2 : habit == 2 ? i / 1000 % 2 : i % 1000 == 0;
      cost.observe(step, load.time(step) * (slow ? (habit == 3 ? 1e7 : 5) : 1));
    }
    const auto after = expected_of(cost, 256) / expected_of(cost, 1);
    CHECK(after < 2 * before);
    CHECK(after > before / 2);
  }
}

TEST_CASE("whatever the clock says, estimates are finite and bounded, and a thousand sane steps mend them") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (unsigned seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    std::mt19937 chance(seed);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(chance); };
    // Of each stream, some of the kinds of times, and steps of some sizes.
    const unsigned kinds = static_cast<unsigned>(pick(1, 255));
    const int most_rows = 1 << pick(0, 13), most_context = 1 << pick(0, 17);
    const auto any_time = [&]() -> double {
      for (;;)
        switch (const auto kind = pick(0, 7); kinds >> kind & 1 ? kind : -1) {
          case 0: return 0;
          case 1: return pick(0, 1) ? std::nan("") : -1;
          case 2: return pick(0, 1) ? infinity : -infinity;
          case 3: return 1e300;
          case 4: return 1e-300;
          case 5: return 1;
          case 6: return std::exp(pick(-5, 12));
          case 7: return pick(0, 99) ? 2 : 1e8; // suspended
          default: break;
        }
    };
    step_cost cost;
    double least = infinity, most = 0;
    for (int i = 0; i < 6000; ++i) {
      const auto ms = any_time();
      cost.observe(shape_of(pick(0, most_context), pick(1, most_rows), pick(0, 4)), ms);
      if (ms > 0 && std::isfinite(ms)) {
        least = std::min(least, std::clamp(ms, 1e-6, 1e9));
        most = std::max(most, std::clamp(ms, 1e-6, 1e9));
      }
    }
    if (cost.known())
      check_sense(cost, least, most);
    for (int i = 0; i < 1000; ++i)
      cost.observe(shape_of(pick(0, 500), i % 2 ? 64 : 1, 1), i % 2 ? 9 : 3);
    CHECK(cost.expected_ms(shape_of(250, 1, 1)) == doctest::Approx(3).epsilon(0.5));
    CHECK(cost.expected_ms(shape_of(250, 64, 1)) == doctest::Approx(9).epsilon(0.5));
    check_sense(cost, 3, 9);
  }
}
