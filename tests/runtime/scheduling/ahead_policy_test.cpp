// Planning ahead of sequences that must be left out.
#include "runtime/scheduling/cost/ahead_policy.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "tests/runtime/scheduling/scheduler_machine.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr double step_ms = 10;

step_cost flat_cost() {
  step_cost cost;
  for (int i = 0; i < 50; ++i)
    for (const auto rows : {1, 8, 64})
      cost.observe({.rows = double(rows), .logit_rows = double(rows)}, step_ms);
  return cost;
}

/// A request whose answer alone has `tokens` tokens.
submission lasting(std::uint64_t id, int tokens) {
  for (token_id first = 20;; ++first) {
    auto a = make(id, {first, static_cast<token_id>(20 + id)}, tokens);
    if (std::ssize(solo(a, 0)) == tokens)
      return a;
  }
}

submission grouped(std::uint64_t id, int tokens) {
  auto a = make(id, {15, 16}, tokens);
  auto& params = a.sampling;
  params.techniques.set(troupe::beams({.width = 3}));
  return a;
}

submission guided(std::uint64_t id, int tokens) {
  auto a = make(id, {17, 18}, tokens);
  auto& params = a.sampling;
  params.ignore_eos = true; // tells the machine
  a.follows = forcing_constraint();
  return a;
}

/// Two plans are in flight whenever there can be two.
void step(machine& m) { m.plan(), m.plan(), m.execute(), m.book(), m.late(); }

/// A group, and sequences that decode beside it.
submission submit_beside_eight(machine& m) {
  m.time = [](const step_plan&) { return step_ms; };
  m.gap = [](bool ahead) { return ahead ? 0.0 : 4.0; };
  const auto group = grouped(100, 40);
  submit(m, group);
  for (std::uint64_t id = 1; id <= 8; ++id)
    submit(m, lasting(id, 100));
  return group;
}

/// `others` decode beside one that cannot be planned ahead; holding a step back costs `gap_ms`. Checks all results.
int plans_ahead(const submission& a, std::uint64_t others, double gap_ms) {
  machine m(1000, true, {64, 32, 100, 2});
  m.time = [](const step_plan&) { return step_ms; };
  m.gap = [=](bool ahead) { return ahead ? 0.0 : gap_ms; };
  submit(m, a);
  std::vector<submission> all;
  for (std::uint64_t id = 1; id <= others; ++id) {
    all.push_back(lasting(id, 100));
    submit(m, all.back());
  }
  for (int i = 0; i < 80; ++i)
    step(m);
  const auto ahead = m.ahead_of_guides;
  m.drain();
  for (auto& other : all)
    check_transcripts(m, other);
  if (a.sampling.grouped())
    CHECK(m.group_results.at(a.request) == solo_group(a));
  else
    check_transcripts(m, a);
  return ahead;
}

} // namespace

TEST_CASE("sequences are left out where the others would idle for longer than these are delayed") {
  const auto cost = flat_cost();
  const step_shape rest{.rows = 8, .logit_rows = 8};
  ahead_policy policy(2);
  CHECK_FALSE(policy.leaves_out(cost, rest, 1, 1000)); // it is not known how long one would idle
  policy.finished(false, 1, step_ms);
  CHECK(policy.leaves_out(cost, rest, 1, 6));       // 12 ms of idling, 10 of delay
  CHECK_FALSE(policy.leaves_out(cost, rest, 1, 4)); // 8 ms
  CHECK_FALSE(policy.leaves_out(cost, rest, 2, 6)); // 20 ms of delay
  CHECK_FALSE(policy.leaves_out(cost, rest, 1, 0)); // nobody is there to go ahead
  policy.finished(true, 0.5, step_ms);
  CHECK(policy.leaves_out(cost, rest, 1, 12)); // planned ahead, they idle for half of it
  CHECK_FALSE(policy.leaves_out(cost, rest, 1, 9));
  CHECK_FALSE(policy.leaves_out(step_cost(), rest, 1, 12));
}

TEST_CASE("what holding a step back costs is measured again from time to time") {
  const auto cost = flat_cost();
  const step_shape rest{.rows = 8, .logit_rows = 8};
  ahead_policy policy(2);
  policy.finished(false, 5, step_ms);
  int ahead = 0;
  for (; policy.leaves_out(cost, rest, 1, 8); ++ahead)
    policy.finished(true, 0, step_ms);
  CHECK(ahead > 100);
  CHECK(ahead < 1000);
  policy.finished(false, 5, step_ms);
  CHECK(policy.leaves_out(cost, rest, 1, 8));
}

TEST_CASE(
  "a sequence with a guide, or a group, is left out of steps planned ahead if that pays, with the same results") {
  for (const auto& a : {guided(100, 40), grouped(100, 20)}) {
    CAPTURE(a.sampling.grouped());
    CHECK(plans_ahead(a, 8, 4) > 5);
    CHECK(plans_ahead(a, 8, 0) == 0);
    CHECK(plans_ahead(a, 1, 1) == 0); // one sequence does not make another wait for so little
  }
}

TEST_CASE("a group that is left out has every other step") {
  machine m(1000, true, {64, 32, 100, 2});
  const auto group = submit_beside_eight(m);
  int steps = 0;
  for (; !m.group_results.contains(100) && steps < 1000; ++steps)
    step(m);
  CHECK(m.ahead_of_guides > 20);
  CHECK(steps < 90);
  m.drain();
  CHECK(m.group_results.at(100) == solo_group(group));
}

TEST_CASE("a group whose outcome comes while blocks are asked for others keeps its own") {
  machine m(1000, false, {64, 32, 100, 2});
  const auto group = submit_beside_eight(m);
  int while_asked = 0;
  m.on_round = [&] { while_asked += m.book(); };
  for (int i = 0; i < 1000 && !m.group_results.contains(100); ++i)
    if (!(m.plan() | m.execute()))
      m.book();
  CHECK(while_asked > 20);
  CHECK(m.sched.counters().preemptions == 0);
  m.on_round = {};
  m.drain();
  CHECK(m.group_results.at(100) == solo_group(group));
}
