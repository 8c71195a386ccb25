#include "runtime/scheduling/cost/step_cost.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

using namespace troupe;

namespace {

/// A machine on which steps take as long as reading the weights, or longer by what their rows compute.
struct plateau_machine {
  double weights_ms = 40, row_ms = 2.5, logit_row_ms = 0.3, attended_ms = 0.0005, read_ms = 0.001;
  double noise = 0.05, slowness = 1;
  std::mt19937 chance{1};

  double exact(const step_shape& s) const {
    return slowness *
      (std::max(weights_ms, 10 + row_ms * s.rows) + logit_row_ms * s.logit_rows + attended_ms * s.attended +
       read_ms * s.read);
  }
  double time(const step_shape& s) { return exact(s) * std::exp(std::normal_distribution<>(0, noise)(chance)); }
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(chance); }
};

/// `count` sequences that decode at `context`.
step_shape decodes(int count, int context) {
  step_shape s;
  for (int i = 0; i < count; ++i)
    s += shape_of(context, 1, 1);
  return s;
}

/// Decoding sequences, and now and then a chunk of a prompt.
step_shape usual_step(plateau_machine& m) {
  auto step = decodes(m.pick(1, 16), m.pick(10, 2000));
  if (m.pick(0, 2) == 0)
    step += shape_of(m.pick(0, 1500), m.pick(1, 200), 1);
  return step;
}

void train_on(step_cost& cost, plateau_machine& m, int steps) {
  for (int i = 0; i < steps; ++i) {
    const auto step = usual_step(m);
    cost.observe(step, m.time(step));
  }
}

/// The mean of |expected − exact| / exact over usual steps.
double mean_error_of(const step_cost& cost, plateau_machine m) {
  double sum = 0;
  for (int i = 0; i < 200; ++i) {
    const auto step = usual_step(m);
    sum += std::abs(cost.expected_ms(step) - m.exact(step)) / m.exact(step);
  }
  return sum / 200;
}

/// A sequence that decodes at `context`, with so many guesses.
step_shape guessing(int guesses, int context) {
  return shape_of(context, 1, 1) + shape_of_guesses(context + 1, guesses);
}

/// Times of a billion parameters by rows: where memory limits few rows, where arithmetic limits any, and in between.
struct row_times {
  const char* name;
  double (*ms)(double rows);
};
constexpr row_times all_row_times[] = {
  {"memory", [](double rows) { return std::max(28.0, 10 + 1.5 * rows); }},
  {"arithmetic", [](double rows) { return 2 + 5 * rows; }},
  {"both", [](double rows) { return 26 + 1.5 * rows; }},
};

} // namespace

TEST_CASE("the shape of a step adds up over its sequences") {
  step_plan plan;
  plan.tokens.resize(5);
  plan.sequences = {{0, 4, 10, 0}, {4, 1, 99, 1}};
  plan.logit_rows = {3, 4};
  const auto s = shape_of(plan);
  CHECK(s.rows == 5);
  CHECK(s.logit_rows == 2);
  CHECK(s.attended == 11 + 12 + 13 + 14 + 100);
  CHECK(s.read == 14 + 100);
}

TEST_CASE("nothing is expected before a step was observed, and senseless times are ignored") {
  step_cost cost;
  const step_shape ten{10, 1, 0, 0};
  for (const double ms : {0., -1., std::nan(""), std::numeric_limits<double>::infinity()})
    cost.observe(ten, ms);
  cost.observe({}, 1);
  CHECK_FALSE(cost.known());
  CHECK(cost.expected_ms(ten) == 0);
  CHECK(cost.efficient_rows(300) == 300);
  CHECK_FALSE(cost.certain(10));
  cost.observe(ten, 20);
  CHECK(cost.known());
  CHECK(cost.expected_ms(ten) == doctest::Approx(20).epsilon(0.01));
  CHECK(cost.most_rows() == 10);
}

TEST_CASE("expected times converge to those of a noisy machine") {
  for (const double noise : {0.02, 0.1, 0.2}) {
    CAPTURE(noise);
    plateau_machine m;
    m.noise = noise;
    step_cost cost;
    train_on(cost, m, 40);
    CHECK(mean_error_of(cost, m) < 0.15 + noise);
    train_on(cost, m, 2000);
    CHECK(mean_error_of(cost, m) < 0.03 + noise / 2);
    CHECK(cost.summary().error == doctest::Approx(noise * 0.8).epsilon(0.7));
    CHECK(cost.summary().steps == 2040);
  }
}

TEST_CASE("rows on the plateau are nearly free, later ones are not, and context counts") {
  plateau_machine m;
  step_cost cost;
  train_on(cost, m, 2000);
  const auto alone = decodes(1, 500);
  const auto more = [&](int rows) { return cost.marginal_ms(alone, shape_of(501, rows, rows)); };
  CHECK(more(4) < 8);
  CHECK(more(64) == doctest::Approx(m.exact(alone + shape_of(501, 64, 64)) - m.exact(alone)).epsilon(0.15));
  const auto far = decodes(8, 30000), near = decodes(8, 100);
  CHECK(cost.expected_ms(far) - cost.expected_ms(near) == doctest::Approx(m.exact(far) - m.exact(near)).epsilon(0.2));
}

TEST_CASE("expected times follow a machine that becomes slower or faster, within tens of steps") {
  plateau_machine m;
  step_cost cost;
  train_on(cost, m, 500);
  for (const double slowness : {2.5, 0.5, 1.0}) {
    CAPTURE(slowness);
    m.slowness = slowness;
    train_on(cost, m, 60);
    CHECK(mean_error_of(cost, m) < 0.15);
  }
}

TEST_CASE("a machine that slows down while only decoding is expected to be slow at prompts too") {
  plateau_machine m;
  step_cost cost;
  train_on(cost, m, 500);
  m.slowness = 2;
  for (int i = 0; i < 100; ++i)
    cost.observe(decodes(4, 500), m.time(decodes(4, 500)));
  const auto prompt = shape_of(0, 128, 1);
  CHECK(cost.expected_ms(prompt) == doctest::Approx(m.exact(prompt)).epsilon(0.25));
}

TEST_CASE("a step that takes twenty times as long as usual is forgotten soon") {
  plateau_machine m;
  step_cost cost;
  train_on(cost, m, 300);
  const auto step = shape_of(0, 64, 1);
  cost.observe(step, 20 * m.exact(step));
  CHECK(cost.expected_ms(step) < 1.3 * m.exact(step));
  train_on(cost, m, 20);
  CHECK(mean_error_of(cost, m) < 0.1);
}

TEST_CASE("the first step of a size may be slow without being believed for long") {
  plateau_machine m;
  m.noise = 0.02;
  step_cost cost;
  const auto chunk = shape_of(0, 64, 1);
  cost.observe(chunk, 10 * m.exact(chunk));
  for (int i = 0; i < 3; ++i)
    cost.observe(chunk, m.time(chunk));
  CHECK(cost.expected_ms(chunk) == doctest::Approx(m.exact(chunk)).epsilon(0.1));
}

TEST_CASE("expected times never fall with more of anything, whatever was observed") {
  for (unsigned seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 chance(seed);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(chance); };
    step_cost cost;
    for (int i = 0; i < 300; ++i)
      cost.observe(shape_of(pick(0, 5000), pick(1, pick(1, 3000)), pick(0, 10)), std::exp(pick(-3, 9)));
    double before = 0;
    for (int rows = 1; rows < 3000; rows += 1 + rows / 5) {
      const step_shape step{double(rows), 1, 100, 100};
      const auto ms = cost.expected_ms(step);
      CHECK(std::isfinite(ms));
      CHECK(ms >= before * (1 - 1e-9));
      CHECK(cost.marginal_ms(step, shape_of(100, 1, 1)) >= -1e-9 * ms);
      before = ms;
    }
    const auto rows = cost.efficient_rows(700);
    CHECK(rows >= 1);
    CHECK(rows <= 700);
  }
}

TEST_CASE("the efficient rows are the fewest with 90 % of the best rate") {
  for (const double row_ms : {0.1, 0.5, 2.5}) {
    CAPTURE(row_ms);
    plateau_machine m;
    m.row_ms = row_ms;
    m.attended_ms = 0;
    m.noise = 0.02;
    step_cost cost;
    for (int i = 0; i < 3000; ++i) {
      const auto step = shape_of(0, m.pick(0, 1) ? m.pick(1, 64) : m.pick(1, 1024), 1);
      cost.observe(step, m.time(step));
    }
    const auto rate = [&](int rows) { return rows / m.exact({double(rows), 0, 0, 0}); };
    const int most = 1024, found = cost.efficient_rows(most);
    CHECK(rate(found) >= 0.8 * rate(most));
    CHECK(rate(found) <= 0.97 * rate(most));
    CHECK(cost.efficient_rows(8) <= 8);
  }
}

TEST_CASE("larger steps than any observed are expected to go on at the last slope") {
  plateau_machine m;
  m.noise = 0.02;
  step_cost cost;
  for (int i = 0; i < 50; ++i)
    for (const int rows : {1, 32, 64})
      cost.observe(shape_of(0, rows, 1), m.time(shape_of(0, rows, 1)));
  const step_shape large{256, 1, 0, 0};
  CHECK(cost.expected_ms(large) == doctest::Approx(m.exact(large)).epsilon(0.15));
  CHECK(cost.certain(64));
  CHECK_FALSE(cost.certain(256));
}

TEST_CASE("a step with guesses is expected rightly after few of them, whatever limits the machine") {
  for (const auto& machine : all_row_times)
    for (const double noise : {0.02, 0.1})
      for (unsigned seed = 0; seed < 5; ++seed) {
        CAPTURE(machine.name);
        CAPTURE(noise);
        CAPTURE(seed);
        std::mt19937 chance(seed);
        const auto time = [&](const step_shape& s) {
          return machine.ms(s.rows) * std::exp(std::normal_distribution<>(0, noise)(chance));
        };
        step_cost cost;
        cost.observe(shape_of(0, 32, 1), 2 * machine.ms(32)); // the first step is slow
        for (int i = 0; i < 60; ++i)
          cost.observe(guessing(0, 32 + i), time(guessing(0, 32 + i)));
        for (const int guesses : {1, 2, 4, 7, 1, 3, 5, 7, 2, 4})
          cost.observe(guessing(guesses, 100), time(guessing(guesses, 100)));
        for (int guesses = 0; guesses <= 7; ++guesses) {
          CAPTURE(guesses);
          const auto step = guessing(guesses, 110);
          CHECK(cost.expected_ms(step) == doctest::Approx(machine.ms(step.rows)).epsilon(0.08 + 1.2 * noise));
        }
      }
}

TEST_CASE("before any guess was seen, a few are expected to cost little beside the step") {
  for (const double first_slowness : {1., 2., 3.})
    for (const int prompt : {16, 32, 200}) {
      CAPTURE(first_slowness);
      CAPTURE(prompt);
      const auto ms = all_row_times[0].ms;
      step_cost cost;
      cost.observe(shape_of(0, prompt, 1), first_slowness * ms(prompt));
      for (int i = 0; i < 20; ++i)
        cost.observe(guessing(0, prompt + i), ms(1));
      CHECK(cost.expected_ms(guessing(1, prompt + 20)) < 1.18 * ms(1));
      CHECK(cost.expected_ms(guessing(4, prompt + 20)) < 1.5 * ms(1));
    }
}

TEST_CASE("thousands of steps that only decode do not make rows, logits or context seem dear") {
  for (const int batch : {1, 16}) {
    CAPTURE(batch);
    plateau_machine m;
    m.noise = 0.1;
    m.weights_ms = 60; // of up to 20 rows
    step_cost cost;
    for (int i = 0; i < 100; ++i)
      train_on(cost, m, 1);
    for (int i = 0; i < 5000; ++i) {
      const auto step = decodes(batch, 100 + i % 900);
      cost.observe(step, m.time(step));
    }
    const auto step = decodes(batch, 500);
    const auto three = step + shape_of_guesses(501, 3);
    CHECK(cost.expected_ms(step) == doctest::Approx(m.exact(step)).epsilon(0.1));
    CHECK(cost.expected_ms(three) == doctest::Approx(m.exact(three)).epsilon(0.15));
    CHECK(cost.summary().logit_row_ms < 0.05 * m.exact(step));
  }
}

TEST_CASE("what guesses cost is still known after the machine and the load have changed") {
  plateau_machine m;
  m.weights_ms = 30;
  step_cost cost;
  train_on(cost, m, 300);
  for (const double slowness : {2.0, 0.7, 1.0}) {
    CAPTURE(slowness);
    m.slowness = slowness;
    for (int i = 0; i < 40; ++i)
      cost.observe(decodes(1, 400), m.time(decodes(1, 400)));
    for (const int guesses : {1, 3, 7})
      CHECK(cost.expected_ms(guessing(guesses, 400)) == doctest::Approx(m.exact(guessing(guesses, 400))).epsilon(0.15));
    for (int i = 0; i < 300; ++i)
      cost.observe(decodes(16, 400), m.time(decodes(16, 400)));
    const auto step = decodes(16, 400) + shape_of_guesses(401, 8);
    CHECK(cost.expected_ms(step) == doctest::Approx(m.exact(step)).epsilon(0.15));
  }
}

TEST_CASE("logit rows that are dear are found to be, once steps have different shares of them") {
  plateau_machine m;
  m.logit_row_ms = 6; // more than twice a row
  step_cost cost;
  train_on(cost, m, 600);
  CHECK(cost.summary().logit_row_ms == doctest::Approx(m.logit_row_ms).epsilon(0.25));
  CHECK(mean_error_of(cost, m) < 0.06);
}

TEST_CASE("the summary says of any step what the model says") {
  step_cost cost;
  plateau_machine m;
  train_on(cost, m, 300);
  for (int i = 0; i < 100; ++i) {
    const auto step = usual_step(m);
    CHECK(expected_ms(cost.summary(), step) == doctest::Approx(cost.expected_ms(step)));
  }
}
