#include "runtime/speculation/speculation_policy.hpp"

#include "tests/runtime/speculation/simulated_speculation.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace troupe;

namespace {

constexpr sequence_id one{1, 0}, two{2, 0};

double cheap_rows(int rows) { return 20 + 0.5 * rows; }

int total(const std::vector<int>& counts) { return std::accumulate(counts.begin(), counts.end(), 0); }

auto always(double p) {
  return [p](int) { return p; };
}

} // namespace

TEST_CASE("policy: near the best fixed number of guesses at any acceptance, at no loss without any") {
  for (const int sequences : {1, 4, 16})
    for (const double acceptance : {0.9, 0.8, 0.5, 0.2, 0.0}) {
      speculation_policy policy;
      const simulated_speculation machine;
      const auto speed = machine.run(policy, sequences, 1500, always(acceptance));
      CAPTURE(sequences);
      CAPTURE(acceptance);
      CHECK(speed > 0.93 * machine.best_speed(sequences, acceptance, 16));
      CHECK(speed > 0.975 * machine.plain_speed(sequences));
    }
}

TEST_CASE("policy: gains as much as the issue asks for, on one stream") {
  for (const auto& [acceptance, least] : {std::pair{0.9, 2.5}, {0.8, 2.0}, {0.5, 1.2}}) {
    speculation_policy policy;
    const simulated_speculation machine{.weights_ms = 28};
    CHECK(machine.run(policy, 1, 400, always(acceptance)) > least * machine.plain_speed(1));
  }
}

TEST_CASE("policy: short requests that accept nothing lose less than 3 %, from the first on") {
  speculation_policy policy;
  double worst = 1;
  for (unsigned request = 0; request < 20; ++request) {
    const simulated_speculation machine{.seed = request};
    worst = std::min(worst, machine.run(policy, 1, 128, always(0)) / machine.plain_speed(1));
  }
  CHECK(worst > 0.97);
}

TEST_CASE("policy: where rows cost as much as steps, there are hardly any guesses") {
  for (const double acceptance : {0.0, 0.5, 0.8}) {
    speculation_policy policy;
    const simulated_speculation machine{.weights_ms = 1, .row_ms = 5, .bubble_ms = 1};
    CHECK(machine.run(policy, 16, 500, always(acceptance)) > 0.975 * machine.plain_speed(16));
  }
}

TEST_CASE("policy: a wrong model of costs makes it lose no more than its share") {
  for (const double acceptance : {0.0, 0.3}) {
    speculation_policy policy;
    const simulated_speculation machine{.row_ms = 12, .cost_error = 0.05};
    CHECK(machine.run(policy, 1, 2000, always(acceptance)) > 0.97 * machine.plain_speed(1));
  }
  // Nor is it stuck if guesses are better than they seem.
  speculation_policy policy;
  const simulated_speculation machine{.row_ms = 1, .cost_error = 3};
  CHECK(machine.run(policy, 1, 1000, always(0.8)) > 1.8 * machine.plain_speed(1));
}

TEST_CASE("policy: a cost model that knows nothing of steps with guesses does not keep it from trying") {
  speculation_policy policy;
  // It believes that a row takes as long as a step (20 ms), but it takes 1 ms.
  const simulated_speculation machine{.row_ms = 1, .cost_error = 20};
  CHECK(machine.run(policy, 1, 600, always(0.9)) > 2.5 * machine.plain_speed(1));
}

TEST_CASE("policy: notices when a text becomes predictable, and when it no longer is") {
  speculation_policy policy;
  const simulated_speculation machine;
  const auto speed = machine.run(policy, 1, 2000, [](int step) { return step < 500 || step >= 1500 ? 0.0 : 0.9; });
  // Half of the steps could be 2.9 times as fast; the search takes some of it.
  const auto half = (machine.plain_speed(1) + machine.best_speed(1, 0.9, 16)) / 2;
  CHECK(speed > 0.85 * half);
}

TEST_CASE("policy: a step that cannot be planned ahead must gain what that costs") {
  speculation_policy policy;
  const simulated_speculation machine{.weights_ms = 20, .row_ms = 0.5, .bubble_ms = 30};
  const auto speed = machine.run(policy, 1, 2000, always(0.5));
  CHECK(policy.overhead_ms({1, 1}, [&](int rows) { return machine.belief(rows); }) > 10);
  CHECK(speed > 0.97 * machine.plain_speed(1));
}

TEST_CASE("policy: rows go to the sequences that make the most of them") {
  speculation_policy policy;
  const std::vector<guess_option> options{{one, 0.9, 8}, {two, 0.3, 8}};
  const auto counts = policy.plan({2, 2}, cheap_rows, options, 100);
  CHECK(counts[0] > counts[1]);
  CHECK(counts[0] <= 8);
  const auto narrow = policy.plan({2, 2}, cheap_rows, options, 3);
  CHECK(total(narrow) == 3);
  CHECK(narrow[0] == 3);
  CHECK(total(policy.plan({2, 2}, cheap_rows, options, 0)) == 0);
  CHECK(total(policy.plan({0, 0}, cheap_rows, {}, 10)) == 0);
  CHECK(policy.plan({2, 2}, cheap_rows, std::vector<guess_option>{{one, 0.9, 0}, {two, 0.9, 2}}, 100) ==
        std::vector<int>{0, 2});
}

TEST_CASE("policy: rows of prompts in the step make guesses neither cheaper nor dearer") {
  speculation_policy policy;
  const std::vector<guess_option> options{{one, 0.8, 16}};
  const auto linear = [](int rows) { return 20 + 2.0 * rows; };
  CHECK(policy.plan({1, 1}, linear, options, 100) == policy.plan({300, 1}, linear, options, 100));
}

TEST_CASE("policy: the passes of a draft model count once for all sequences that they serve") {
  speculation_policy policy;
  const std::vector<guess_option> lone{{one, 0.8, 8, 6.0}};
  CHECK(total(policy.plan({1, 1}, cheap_rows, lone, 100)) > 0);
  const std::vector<guess_option> dear{{one, 0.8, 8, 40.0}};
  CHECK(total(policy.plan({1, 1}, cheap_rows, dear, 100)) == 0);
  std::vector<guess_option> many;
  for (std::uint64_t i = 0; i < 8; ++i)
    many.push_back({{i, 0}, 0.8, 8, 6.0});
  CHECK(total(policy.plan({1, 1}, cheap_rows, std::vector<guess_option>{many[0]}, 100)) <
        total(policy.plan({8, 8}, cheap_rows, many, 100)));
}

TEST_CASE("policy: acceptance is measured for each sequence, and begins as that of its source") {
  speculation_policy policy;
  policy.begin(one);
  CHECK(policy.acceptance(one, 0, 0) == doctest::Approx(0.5));
  for (int i = 0; i < 100; ++i)
    policy.judged(one, 0, 0, 4, 0);
  CHECK(policy.acceptance(one, 0, 0) < 0.05);
  policy.begin(two);
  CHECK(policy.acceptance(two, 0, 0) < 0.1); // as of the source
  CHECK(policy.acceptance(two, 1, 0) == doctest::Approx(0.5));
  CHECK(policy.acceptance(two, 0, 1) == doctest::Approx(0.5));
  for (int i = 0; i < 40; ++i)
    policy.judged(two, 0, 0, 4, 4);
  CHECK(policy.acceptance(two, 0, 0) > 0.9);
  CHECK(policy.acceptance(one, 0, 0) < 0.1);
  policy.end(two);
  policy.judged(two, 0, 0, 4, 4); // unknown by now
  policy.plain(two);
}

TEST_CASE("policy: who has no guesses is tried again, ever more rarely") {
  speculation_policy policy({.share = 1}); // an allowance that does not end
  policy.begin(one);
  for (int i = 0; i < 50; ++i)
    policy.judged(one, 0, 0, 4, 0);
  const auto tokens_until_retry = [&] {
    for (int n = 0; n < 1000; ++n) {
      const std::vector<guess_option> options{{one, policy.acceptance(one, 0, 0), 8}};
      if (total(policy.plan(
            {1, 1}, [](int rows) { return 20.0 * rows; }, options, 100)) == 1)
        return n;
      policy.plain(one);
    }
    return 1000;
  };
  CHECK(tokens_until_retry() == 256);
  policy.judged(one, 0, 0, 1, 1);
  CHECK(tokens_until_retry() == 8);
  policy.judged(one, 0, 0, 1, 0);
  CHECK(tokens_until_retry() == 16);
}
