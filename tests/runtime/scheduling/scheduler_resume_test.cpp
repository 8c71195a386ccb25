// Requests that are resumed by another scheduler.
#include "tests/rounds.hpp"
#include "tests/runtime/scheduling/scheduler_machine.hpp"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("requests begun by one scheduler finish on another with the same tokens") {
  std::uint64_t resumed = 0, restarted = 0;
  const restored_borders restore;
  for (int seed = 0; seed < rounds(300); ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(static_cast<unsigned>(seed));
    auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    scheduler_limits limits{pick(1, 100), pick(4, 12), 1000, pick(1, 3)};
    rope_borders.assign(static_cast<std::size_t>(pick(0, 1)), pick(1, 140));
    limits.rope_borders = rope_borders;
    const int blocks = 10 + pick(0, 30);
    machine first(blocks, true, limits, 10), second(blocks, pick(0, 1) == 1, limits);
    std::vector<submission> all;
    for (int i = 1, n = pick(1, 12); i <= n; ++i) {
      all.push_back(make(static_cast<std::uint64_t>(i),
                         std::vector<token_id>(static_cast<std::size_t>(pick(1, 100)), 11 + i % 3), pick(1, 50),
                         pick(1, 4)));
      submit(first, all.back());
    }
    for (int i = pick(0, 120); i > 0; --i)
      first.plan(), first.execute(), first.book();
    for (auto a : all) {
      int ended = 0;
      bool begun = false; // one may have ended while others waited for their slots
      for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(a.sampling.n); ++k) {
        const auto& out = second.transcripts[{a.request, k}] = first.transcripts[{a.request, k}];
        const bool over = std::ssize(out) == a.sampling.max_tokens || (!out.empty() && out.back() < 10);
        ended += over;
        begun = begun || !out.empty();
        if (!over)
          a.resumed.push_back({k, out});
      }
      if (ended == a.sampling.n)
        continue;
      if (!begun)
        a.resumed.clear();
      a.again = true;
      (a.resumed.empty() ? restarted : resumed) += 1;
      submit(second, a);
    }
    second.drain();
    for (auto& a : all)
      check_transcripts(second, a);
    CHECK(second.manager.counters().in_use == 0);
  }
  CHECK(resumed > static_cast<std::uint64_t>(rounds(200)));
  CHECK(restarted > static_cast<std::uint64_t>(rounds(200)));
}

TEST_CASE("sequences of one request resume together even if some have no token yet") {
  machine m(100, true, {512, 8, 10, 2});
  auto a = make(1, std::vector<token_id>(40, 17), 12, 3);
  a.again = true;
  const auto whole = solo(a, 1);
  REQUIRE(whole.size() > 4);
  m.transcripts[{1, 1}] = {whole.begin(), whole.begin() + 4};
  a.resumed = {{0, {}}, {1, m.transcripts[{1, 1}]}, {2, {}}};
  submit(m, a);
  m.drain();
  check_transcripts(m, a);
}

TEST_CASE("the queue is never too full for a readmitted request") {
  scheduler s({512, 1, 1, 2});
  CHECK_FALSE(s.submit(make(1, {1}, 1)).has_value());
  CHECK_FALSE(s.submit(make(2, {1}, 1)).has_value());
  auto third = make(3, {1}, 1);
  CHECK(s.submit(third)->code == errc::overloaded);
  third.again = true;
  CHECK_FALSE(s.submit(third).has_value());
}
