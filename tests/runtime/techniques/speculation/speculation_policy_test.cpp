#include "runtime/techniques/speculation/speculation_policy.hpp"

#include "tests/rounds.hpp"
#include "tests/runtime/techniques/speculation/simulated_speculation.hpp"

#include <doctest/doctest.h>

#include <array>
#include <numeric>
#include <random>

using namespace troupe;

namespace {

constexpr sequence_id one{1, 0}, two{2, 0};

step_estimate cheap_rows(int rows) { return {20 + 0.5 * rows, true}; }

/// Guesses behind each other, of which the first ones were right.
void judged(speculation_policy& policy, sequence_id id, std::size_t guesses, std::size_t right) {
  policy.learn(id, 0, line_of(guesses, right));
  policy.tried(id, right > 0);
}

int total(const std::vector<int>& counts) { return std::accumulate(counts.begin(), counts.end(), 0); }

/// Lets steps of so many rows take what was expected without guesses.
void check_size(speculation_policy& policy, const step_cost_fn& cost, int rows, int sequences) {
  const auto ms = cost(rows).ms;
  policy.finished({.step = {{rows, sequences}, ms, ms, ms, 0, true}}, cost);
}

/// Loads of all kinds, one after the other, on a machine that other programs slow down now and then. Returns the worst
/// gain of a load and that of all.
std::pair<double, double> worst_and_whole(const simulated_machine& machine, unsigned seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](const auto& choices) { return choices[random() % std::size(choices)]; };
  simulated_speculation run(machine, seed);
  double worst = 1e9;
  for (int i = 0; i < 20; ++i) {
    simulated_load load;
    load.sequences = one_of(std::array{1, 1, 2, 5, 16, 40});
    load.steps = 300 + static_cast<int>(random() % 600);
    load.acceptance = one_of(std::array{0.0, 0.1, 0.3, 0.6, 0.9});
    load.prompt_rows = one_of(std::array{0, 16, 100});
    run.machine.slowness = one_of(std::array{1.0, 1.0, 0.7, 2.0});
    worst = std::min(worst, run.run(load));
  }
  return {worst, run.gain()};
}

} // namespace

TEST_CASE("policy: near the best fixed number of guesses at any acceptance, at no loss without any") {
  for (const int sequences : {1, 4, 16})
    for (const double acceptance : {0.9, 0.8, 0.5, 0.2, 0.0}) {
      simulated_speculation sim;
      const auto gain = sim.run({sequences, 1500, acceptance});
      CAPTURE(sequences);
      CAPTURE(acceptance);
      CHECK(gain > 0.92 * sim.machine.best_gain(sequences, acceptance));
      CHECK(gain > 0.975);
    }
}

TEST_CASE("policy: gains as much as one stream can, from the first request on") {
  for (const auto& [acceptance, least] : {std::pair{0.9, 2.5}, {0.8, 2.0}, {0.5, 1.2}}) {
    simulated_speculation sim({.weights_ms = 28});
    CHECK(sim.run({1, 100, acceptance}) > least);
  }
}

TEST_CASE("policy: where rows are cheap, guesses that are seldom right gain what they can") {
  // As texts drawn at high temperatures are guessed by n-grams, on a small model.
  for (const double acceptance : {0.15, 0.2, 0.3}) {
    CAPTURE(acceptance);
    double gain = 0, best = 0;
    for (unsigned seed = 0; seed < 8; ++seed) {
      simulated_speculation sim({.weights_ms = 2, .row_ms = 0.08, .bubble_ms = 0.02}, seed);
      gain += sim.run({.sequences = 1, .steps = 300, .acceptance = acceptance, .seen = true}) - 1;
      best += sim.machine.best_gain(1, acceptance) - 1;
    }
    CHECK(gain > 0.6 * best);
  }
}

TEST_CASE("policy: short requests that accept nothing lose less than 3 %, from the first on") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    simulated_speculation sim({}, seed);
    for (int request = 0; request < 3; ++request)
      CHECK(sim.run({1, 128, 0}) > 0.97);
  }
}

TEST_CASE("policy: loses at most 3.5 % of nearly any load, and about 1 % of all, however they change") {
  const simulated_machine machines[] = {
    {},                                                      // few rows are cheap
    {.weights_ms = 28, .row_ms = 2, .free_rows = 12},        // and some are free
    {.weights_ms = 5, .row_ms = 5},                          // none are
    {.weights_ms = 0.15, .row_ms = 0.02, .bubble_ms = 0.12}, // not to plan ahead costs most
    {.weights_ms = 4, .row_ms = 0.01, .noise = 0.02},        // a large GPU
    {.weights_ms = 28, .row_ms = 2, .free_rows = 12, .noise = 0.15}};
  for (const auto& machine : machines) {
    CAPTURE(machine.weights_ms);
    CAPTURE(machine.noise);
    int unlucky = 0;
    for (int seed = 0; seed < rounds(8); ++seed) {
      const auto [worst, whole] = worst_and_whole(machine, static_cast<unsigned>(seed));
      CAPTURE(seed);
      unlucky += worst <= 0.965; // the machine changed its speed with a load that nothing was known of
      CHECK(worst > 0.9);
      CHECK(whole > 0.985);
    }
    CHECK(unlucky <= rounds(8) / 6 + 1);
  }
}

TEST_CASE("policy: steps of thousands of rows do not spoil what is known of small ones") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    simulated_speculation sim({.weights_ms = 4, .row_ms = 0.01, .noise = 0.02}, seed); // a large GPU
    for (const int prompt_rows : {8000, 1500, 0})
      for (const int sequences : {1, 16})
        for (const double acceptance : {0.0, 0.5, 0.8}) {
          CAPTURE(seed);
          CAPTURE(prompt_rows);
          CHECK(sim.run({sequences, 200, acceptance, prompt_rows}) > 0.965);
        }
  }
}

TEST_CASE("policy: where rows cost as much as steps, there are hardly any guesses") {
  for (const double acceptance : {0.0, 0.5, 0.8}) {
    simulated_speculation sim({.weights_ms = 1, .row_ms = 5, .bubble_ms = 1});
    CHECK(sim.run({16, 500, acceptance}) > 0.98);
  }
}

TEST_CASE("policy: a wrong model of costs makes it lose no more than its share") {
  for (const double acceptance : {0.0, 0.3}) {
    simulated_speculation sim({.row_ms = 12});
    sim.belief = [](int rows) { return 20 + 0.05 * 12 * (rows - 1); };
    CHECK(sim.run({1, 2000, acceptance}) > 0.97);
  }
  // Nor is it stuck if guesses are better than they seem.
  simulated_speculation sim({.row_ms = 1});
  sim.belief = [](int rows) { return 20 + 3.0 * (rows - 1); };
  CHECK(sim.run({1, 1000, 0.8}) > 1.5);
}

TEST_CASE("policy: long use without guesses does not keep it from trying them") {
  simulated_speculation sim({.weights_ms = 26, .row_ms = 1});
  for (int i = 0; i < 2000; ++i)
    sim.cost.observe(shape_of(300 + i % 100, 1, 1), sim.machine.time(1) * (0.9 + 0.05 * (i % 5)));
  CHECK(sim.run({1, 100, 0.9}) > 2.5);
}

TEST_CASE("policy: notices when a text becomes predictable, and when it no longer is") {
  simulated_speculation sim;
  sim.run({.sequences = 1, .steps = 500, .acceptance = 0});
  CHECK(sim.run({.sequences = 1, .steps = 1000, .acceptance = 0.9, .fresh = false}) >
        0.8 * sim.machine.best_gain(1, 0.9));
  CHECK(sim.run({.sequences = 1, .steps = 500, .acceptance = 0, .fresh = false}) > 0.97);
}

TEST_CASE("policy: a step that cannot be planned ahead must gain what that costs") {
  simulated_speculation sim({.weights_ms = 20, .row_ms = 0.5, .bubble_ms = 30});
  const auto gain = sim.run({1, 2000, 0.5});
  CHECK(sim.policy.overhead_ms() > 10);
  CHECK(gain > 0.97);
}

TEST_CASE("policy: an accident in a step that was held back does not end guesses for good") {
  simulated_speculation sim;
  sim.run({1, 20, 0.0});
  const auto accident = [&](int held) {
    for (int i = 0; i < held; ++i)
      sim.policy.finished({.step = {{1, 1}, 1e9, 20, 20, 0, true}, .held = true},
                          [&](int r) { return sim.estimate(r); });
  };
  for (const int held : {1, 20}) {
    CAPTURE(held);
    accident(held);
    CHECK(sim.policy.overhead_ms() > sim.machine.bubble_ms);
    sim.run({1, 1500, 0.9});
    CHECK(sim.run({1, 1500, 0.9}) > 0.9 * sim.machine.best_gain(1, 0.9));
  }
}

TEST_CASE("policy: rows go to the sequences that make the most of them") {
  speculation_policy policy;
  check_size(policy, cheap_rows, 2, 2);
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
  const auto linear = [](int rows) { return step_estimate{20 + 2.0 * rows, true}; };
  check_size(policy, linear, 1, 1);
  check_size(policy, linear, 300, 1);
  CHECK(policy.plan({1, 1}, linear, options, 100) == policy.plan({300, 1}, linear, options, 100));
}

TEST_CASE("policy: the passes of a draft model count once for all sequences that they serve") {
  speculation_policy policy;
  check_size(policy, cheap_rows, 1, 1);
  check_size(policy, cheap_rows, 8, 8);
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
    judged(policy, one, 4, 0);
  CHECK(policy.acceptance(one, 0, 0) < 0.05);
  policy.begin(two);
  CHECK(policy.acceptance(two, 0, 0) < 0.1); // as of the source
  CHECK(policy.acceptance(two, 1, 0) == doctest::Approx(0.5));
  CHECK(policy.acceptance(two, 0, 1) == doctest::Approx(0.5));
  for (int i = 0; i < 40; ++i)
    judged(policy, two, 4, 4);
  CHECK(policy.acceptance(two, 0, 0) > 0.9);
  CHECK(policy.acceptance(one, 0, 0) < 0.1);
  policy.end(two);
  judged(policy, two, 4, 4); // unknown by now
  policy.plain(two);
}

TEST_CASE("policy: who has no guesses is tried again, ever more rarely") {
  speculation_policy policy({.share = 1}); // an allowance that does not end
  const auto dear_rows = [](int rows) { return step_estimate{20.0 * rows, false}; };
  check_size(policy, dear_rows, 1, 1);
  policy.begin(one);
  for (int i = 0; i < 50; ++i)
    judged(policy, one, 4, 0);
  const auto tokens_until_retry = [&] {
    for (int n = 0; n < 1000; ++n) {
      const std::vector<guess_option> options{{one, policy.acceptance(one, 0, 0), 8}};
      if (total(policy.plan({1, 1}, dear_rows, options, 100)) == 1)
        return n;
      policy.plain(one);
    }
    return 1000;
  };
  CHECK(tokens_until_retry() == 256);
  judged(policy, one, 1, 1);
  CHECK(tokens_until_retry() == 8);
  judged(policy, one, 1, 0);
  CHECK(tokens_until_retry() == 16);
}

TEST_CASE("policy: guesses only where a step without any took what was expected, and not for long") {
  speculation_policy policy;
  const std::vector<guess_option> options{{one, 0.9, 8}};
  const auto guesses = [&](plain_step step) { return total(policy.plan(step, cheap_rows, options, 100)); };
  CHECK(guesses({1, 1}) == 0);
  policy.finished({.step = {{1, 1}, 60, 60, 20.5, 0, true}}, cheap_rows); // three times as long
  CHECK(guesses({1, 1}) == 0);
  check_size(policy, cheap_rows, 1, 1);
  CHECK(guesses({1, 1}) > 0);
  CHECK(guesses({40, 1}) == 0);
  int steps = 0;
  for (; guesses({1, 1}) > 0; ++steps)
    policy.finished({.step = {{1, 1}, 22, 22, 20.5, 1.5, true}, .guesses = 3, .accepted = 3}, cheap_rows);
  CHECK(steps == 64);
}

TEST_CASE("policy: a row that is known to cost much is not tried") {
  speculation_policy policy;
  for (const bool certain : {true, false}) {
    CAPTURE(certain);
    const auto cost = [&](int rows) { return step_estimate{1 + 5.0 * (rows - 1), certain}; };
    check_size(policy, cost, 1, 1);
    const auto id = certain ? one : two;
    policy.begin(id);
    for (int i = 0; i < 300; ++i)
      policy.plain(id);
    CHECK(total(policy.plan({1, 1}, cost, std::vector<guess_option>{{id, 0.1, 8}}, 100)) == (certain ? 0 : 1));
  }
}
