// Several clients share a scheduler.
#include "runtime/techniques/beams/technique.hpp"
#include "tests/rounds.hpp"
#include "tests/runtime/scheduling/scheduler_machine.hpp"

#include <random>
#include <set>
#include <vector>

using namespace troupe;
using namespace troupe::testing;

namespace {

submission of(const char* client, std::uint64_t id, std::size_t prompt, int max_tokens, int n = 1) {
  auto a = make(id, std::vector<token_id>(prompt, static_cast<token_id>(11 + id % 50)), max_tokens, n);
  a.client = client;
  return a;
}

void step(machine& m) { m.plan(), m.execute(), m.book(); }

/// Steps until the request has so many tokens in its sequence 0.
int steps_until(machine& m, std::uint64_t request, std::size_t tokens, int most = 10'000) {
  int steps = 0;
  while (m.transcripts[{request, 0}].size() < tokens && steps < most)
    step(m), ++steps;
  return steps;
}

} // namespace

TEST_CASE("a client that wants all sequences lets another's request start at once, and loses nothing") {
  machine m(1000, true, {64, 8, 100, 2});
  std::vector<submission> greedy;
  for (std::uint64_t id = 1; id <= 4; ++id)
    submit(m, greedy.emplace_back(of("a", id, 20, 60, 8)));
  for (int i = 0; i < 20; ++i)
    step(m);
  REQUIRE(m.sched.counters().running == 8);
  const auto other = of("b", 9, 20, 8);
  submit(m, other);
  CHECK(steps_until(m, 9, 1) <= 4);
  CHECK(steps_until(m, 9, 8) <= 9 + 8);
  CHECK(m.sched.counters().preemptions == 1);
  m.drain();
  check_transcripts(m, other);
  for (const auto& a : greedy)
    check_transcripts(m, a);
  CHECK(m.manager.counters().in_use == 0);
  CHECK(m.sampling_states() == 0);
}

TEST_CASE("preference orders a client's own requests, and puts none ahead of another client's") {
  machine m(1000, true, {64, 2, 100, 2});
  auto first = of("a", 1, 20, 200, 2);
  submit(m, first);
  for (int i = 0; i < 10; ++i)
    step(m);
  auto later = of("a", 2, 20, 4), urgent = of("a", 3, 20, 4), other = of("b", 4, 20, 4);
  urgent.preference = 1'000'000;
  for (auto* a : {&later, &urgent, &other})
    submit(m, *a);
  CHECK(steps_until(m, 4, 1) <= 8); // of the client that has none
  steps_until(m, 3, 1);
  CHECK(m.transcripts[{2, 0}].empty());
  m.drain();
  for (auto* a : {&first, &later, &urgent, &other})
    check_transcripts(m, *a);
}

TEST_CASE("what waits behind requests of a higher priority without an end starts all the same") {
  machine m(1000, true, {64, 2, 100, 2});
  std::uint64_t id = 10;
  const auto keep_busy = [&] {
    for (; m.sched.counters().waiting < 3; ++id) {
      auto a = of("a", id, 20, 50, 2);
      a.priority = 1;
      submit(m, a);
    }
  };
  keep_busy();
  for (int i = 0; i < 10; ++i)
    step(m);
  submit(m, of("b", 1, 20, 4));
  int steps = 0;
  for (; m.transcripts[{1, 0}].empty() && steps < 3000; ++steps) {
    step(m);
    keep_busy();
  }
  CHECK(steps > 500);
  CHECK(steps < 2000);
}

TEST_CASE("a client whose readers pause loses its own requests, not another's") {
  machine m(1000, true, {64, 2, 4, 2});
  submit(m, of("b", 1, 20, 50));
  CHECK(m.sched.pause(1, true).empty());
  std::vector<std::uint64_t> dropped;
  for (std::uint64_t id = 2; id <= 20; ++id) {
    submit(m, of("a", id, 20, 50));
    for (const auto request : m.sched.pause(id, true))
      dropped.push_back(request);
  }
  CHECK(dropped.size() == 20 - 6);
  CHECK(std::ranges::find(dropped, 1) == dropped.end());
  CHECK(dropped.front() == 2); // paused longest
}

TEST_CASE("two clients that both want all sequences have half of them each") {
  machine m(1000, true, {64, 8, 100, 2});
  const auto a = of("a", 1, 20, 300, 8), b = of("b", 2, 20, 300, 8);
  submit(m, a);
  submit(m, b);
  int of_a = 0, of_b = 0;
  for (int i = 0; i < 20 && of_a + of_b < 8; ++i) {
    step(m);
    of_a = of_b = 0;
    for (const auto& [id, tokens] : m.transcripts)
      (id.request == 1 ? of_a : of_b) += !tokens.empty();
  }
  CHECK(of_a == 4);
  CHECK(of_b == 4);
  m.drain();
  check_transcripts(m, a);
  check_transcripts(m, b);
}

TEST_CASE("beams give way to another client's request, too, and are found again") {
  machine m(1000, true, {64, 4, 100, 2});
  auto beams = of("a", 1, 20, 100);
  auto& params = beams.sampling;
  params.techniques.set(troupe::beams({.width = 4}));
  submit(m, beams);
  for (int i = 0; i < 30; ++i)
    step(m);
  const auto other = of("b", 2, 20, 5);
  submit(m, other);
  CHECK(steps_until(m, 2, 5) <= 20);
  m.drain();
  CHECK(m.group_results.at(1) == solo_group(beams));
  check_transcripts(m, other);
}

TEST_CASE("a group that lost its blocks comes back in no more of them than it had") {
  for (const int answer : {9, 17})
    for (const bool cache : {false, true}) {
      if (recurrent_layers) // whose states cannot be taken back
        continue;
      CAPTURE(answer);
      CAPTURE(cache);
      machine m(6, cache, {64, 8, 100, 2}); // two of the prompt, and one or two for each beam
      auto beams = of("", 1, 32, answer);
      beams.sampling.techniques.set(troupe::beams({.width = answer == 9 ? 3 : 2}));
      submit(m, beams);
      for (int i = 0; i < answer - 2; ++i)
        step(m);
      REQUIRE_FALSE(m.group_results.contains(1));
      auto urgent = of("", 2, 70, 3);
      urgent.priority = 1;
      submit(m, urgent);
      m.drain();
      CHECK(m.sched.counters().preemptions > 0);
      CHECK(m.sched.collect_failed().empty());
      check_transcripts(m, urgent);
      REQUIRE(m.group_results.contains(1));
      CHECK(m.group_results.at(1) == solo_group(beams));
      CHECK(m.manager.counters().in_use == 0);
    }
}

TEST_CASE("beams beside each other, and paused ones, all end, and none for lack of blocks") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(seed);
    const auto any = [&](int most) { return static_cast<int>(rng() % static_cast<unsigned>(most)); };
    machine m(any(2) ? 1000 : 14, true, {48, 4, 100, 2}); // a request takes 12 at most
    std::vector<submission> all;
    std::set<std::uint64_t> paused;
    for (std::uint64_t id = 1; id <= 8; ++id) {
      auto& a = all.emplace_back(of(any(2)     ? "a"
                                      : any(2) ? "b"
                                               : "c",
                                    id, static_cast<std::size_t>(5 + any(45)), 1 + any(30), 1 + any(4)));
      if (any(2))
        a.sampling.n = 1, a.sampling.techniques.set(troupe::beams({.width = 2 + any(2)}));
      submit(m, a);
      for (auto steps = any(2) ? 0 : any(20); steps > 0; --steps) {
        const auto which = static_cast<std::uint64_t>(1 + any(static_cast<int>(id)));
        if (any(8) == 0 && paused.insert(which).second)
          m.sched.pause(which, true);
        else if (any(3) == 0 && paused.erase(which) > 0)
          m.sched.pause(which, false);
        step(m);
      }
    }
    for (const auto each : paused)
      m.sched.pause(each, false);
    m.drain();
    CHECK(m.sched.collect_failed().empty());
    for (const auto& a : all)
      if (a.sampling.group())
        CHECK(m.group_results[a.request] == solo_group(a));
      else
        check_transcripts(m, a);
  }
}

TEST_CASE("few blocks for many do not keep them all from going on") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(seed);
    const auto any = [&](int most) { return static_cast<int>(rng() % static_cast<unsigned>(most)); };
    machine m(7 + any(4), any(2) == 0, {16 + any(48), 8, 100, 1 + any(2)}); // a sequence takes 6 at most
    std::vector<submission> all;
    for (std::uint64_t id = 1; id <= 6; ++id) {
      submit(
        m,
        all.emplace_back(of(any(2) ? "a" : "b", id, static_cast<std::size_t>(5 + any(70)), 1 + any(21), 1 + any(3))));
      for (auto steps = any(2) ? 0 : any(20); steps > 0; --steps)
        step(m);
    }
    m.drain();
    for (const auto& a : all)
      check_transcripts(m, a);
  }
}

TEST_CASE("a short prompt does not wait until another client's long one is computed") {
  for (const bool waits : {false, true}) // in the queue, or beside a prompt under way
    for (const int rows : {32, 16}) {    // of a step: for both, or for one at a time
      CAPTURE(waits);
      CAPTURE(rows);
      machine m(1000, true, {rows, 9, 100, 2});
      const auto lengthy = of("a", 1, 1576, 4), brief = of("b", 2, 20, 4);
      submit(m, lengthy);
      for (int i = 0; i < (waits ? 0 : 5); ++i)
        step(m);
      submit(m, brief);
      CHECK(steps_until(m, 2, 1) <= (rows == 32 ? 5 : 8));
      CHECK(m.transcripts[{1, 0}].empty());
      m.drain();
      check_transcripts(m, lengthy);
      check_transcripts(m, brief);
    }
}

TEST_CASE("a client that only decodes shares the steps of another's long prompts") {
  machine m(1000, true, {64, 8, 100, 1});
  const auto alone = of("a", 1, 200, 1), beside = of("a", 3, 200, 1);
  submit(m, alone);
  const auto steps_alone = steps_until(m, 1, 1);
  CHECK(steps_alone <= 5); // whole steps
  submit(m, of("b", 2, 16, 100));
  steps_until(m, 2, 1);
  submit(m, beside);
  const auto begun = m.transcripts[{2, 0}].size();
  CHECK(steps_until(m, 3, 1) >= 2 * steps_alone - 2); // each half as long
  CHECK(m.transcripts[{2, 0}].size() >= begun + 6);
  for (std::uint64_t id = 4; id <= 6; ++id) // not what one has left over either
    submit(m, of("a", id, 100, 1));
  CHECK(steps_until(m, 6, 1) >= 300 / 32);
  m.drain();
  check_transcripts(m, alone);
  check_transcripts(m, beside);
}

TEST_CASE("a client that has its share of a step's rows gets no further slots beside another that decodes") {
  const auto running = [](bool with_other) {
    machine m(1000, true, {16, 16, 100, 1});
    if (with_other) {
      submit(m, of("b", 99, 10, 200));
      steps_until(m, 99, 1);
    }
    std::vector<submission> all_of_a;
    for (std::uint64_t id = 1; id <= 40; ++id)
      submit(m, all_of_a.emplace_back(of("a", id, 1, 60)));
    for (int i = 0; i < 30; ++i)
      step(m);
    const auto all = m.sched.counters().running;
    m.drain(); // none waits for ever
    for (const auto& each : all_of_a)
      check_transcripts(m, each);
    return all;
  };
  CHECK(running(false) == 16);
  CHECK(running(true) == 1 + 8);
}

TEST_CASE("an own short prompt keeps its place behind a long one") {
  machine m(1000, true, {32, 9, 100, 2});
  submit(m, of("a", 1, 320, 4));
  submit(m, of("a", 2, 20, 4));
  CHECK(steps_until(m, 2, 1) >= 10);
}

TEST_CASE("a full queue refuses its largest client's last request for another client's first") {
  machine m(1000, true, {64, 1, 4, 2});
  for (std::uint64_t id = 1; id <= 5; ++id)
    submit(m, of("a", id, 20, 20));
  CHECK(m.sched.submit(of("a", 6, 20, 20))->code == errc::overloaded);
  const auto other = of("b", 7, 20, 20);
  submit(m, other);
  const auto failed = m.sched.collect_failed();
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].first == 5);
  CHECK(failed[0].second.code == errc::overloaded);
  CHECK(m.sched.submit(of("a", 8, 20, 20))->code == errc::overloaded);
  m.drain();
  check_transcripts(m, other);
}

TEST_CASE("random clients get what each sequence gets alone, whoever gives way") {
  std::uint64_t preemptions = 0;
  for (int seed = 0; seed < rounds(300); ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(static_cast<unsigned>(seed));
    auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    const scheduler_limits limits{pick(4, 100), pick(4, 12), 1000, pick(1, 3)};
    machine m(10 + pick(0, 60), pick(0, 3) > 0, limits, pick(0, 1) * 20);
    std::vector<submission> all;
    constexpr const char* clients[] = {"a", "a", "a", "b", "c"};
    for (std::uint64_t id = 1, n = static_cast<std::uint64_t>(pick(2, 20)); id <= n; ++id) {
      auto a = of(clients[pick(0, 4)], id, static_cast<std::size_t>(pick(1, 100)), pick(1, 50), pick(1, 4));
      a.priority = pick(0, 5) == 0 ? 1 : 0;
      all.push_back(a);
    }
    for (const auto& a : all) {
      submit(m, a);
      for (int i = pick(0, 10); i > 0; --i)
        step(m);
    }
    m.drain();
    for (const auto& a : all)
      check_transcripts(m, a);
    CHECK(m.manager.counters().in_use == 0);
    CHECK(m.sampling_states() == 0);
    preemptions += m.sched.counters().preemptions;
  }
  CHECK(preemptions > static_cast<std::uint64_t>(rounds(100)));
}
