// Sequences that grow beyond a border of LongRoPE, where all their positions are rotated otherwise.
#include "runtime/techniques/beams/technique.hpp"
#include "tests/runtime/scheduling/scheduler_machine.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

scheduler_limits with_border(std::int32_t border) {
  scheduler_limits limits{512, 8, 100, 2};
  limits.rope_borders = rope_borders = {border};
  return limits;
}

} // namespace

TEST_CASE("a sequence that grows beyond a border is computed again, and only then") {
  const restored_borders restore;
  for (const bool cache : {false, true})
    for (const int prompt : {60, 64, 65}) {
      CAPTURE(prompt);
      machine m(100, cache, with_border(64));
      const auto a = make(1, numbered_tokens(prompt), 12);
      submit(m, a);
      m.drain();
      check_transcripts(m, a);
      const auto known = m.transcripts[{1, 0}].size();
      REQUIRE(known == 12); // no EOS
      const auto c = m.sched.counters();
      CHECK(c.preemptions == 0);
      CHECK(c.discarded_rows == 0);
      CHECK(c.prefill_rows + c.decode_rows == static_cast<std::uint64_t>(prompt + 11 + (prompt < 65 ? 64 : 0)));
    }
}

TEST_CASE("cached prefixes are of use to sequences on the same side of a border alone") {
  const restored_borders restore;
  machine m(200, true, with_border(64));
  CHECK(cached_of(m, 1, numbered_tokens(64)) == 0);
  CHECK(cached_of(m, 2, numbered_tokens(60)) == 48);
  CHECK(cached_of(m, 3, numbered_tokens(80)) == 0); // beyond
  CHECK(cached_of(m, 4, numbered_tokens(90)) == 80);
  CHECK(cached_of(m, 5, numbered_tokens(50)) == 48);
  const auto grows = make(6, numbered_tokens(60, 200), 20); // crosses: its blocks are found under both rotations
  submit(m, grows);
  m.drain();
  m.sched.collect_started();
  check_transcripts(m, grows);
  CHECK(cached_of(m, 7, numbered_tokens(64, 200)) == 48);
  auto whole = numbered_tokens(60, 200);
  const auto& answer = m.transcripts[{6, 0}];
  whole.insert(whole.end(), answer.begin(), answer.end());
  REQUIRE(whole.size() == 80);
  CHECK(cached_of(m, 8, whole) == 64);
}

TEST_CASE("beams and siblings cross a border, also with few blocks") {
  const restored_borders restore;
  for (const int blocks : {14, 40}) {
    machine m(blocks, true, with_border(64));
    auto beams = make(1, numbered_tokens(58), 20);
    auto& params = beams.sampling;
    params.techniques.set(troupe::beams({.width = 3}));
    const auto siblings = make(2, numbered_tokens(50, 300), 24, 3);
    submit(m, beams);
    submit(m, siblings);
    m.drain();
    CHECK(m.sched.collect_failed().empty());
    CHECK(m.group_results[1] == solo_group(beams));
    check_transcripts(m, siblings);
    CHECK(m.manager.counters().in_use == 0);
  }
}

TEST_CASE("guesses end at a border") {
  const restored_borders restore;
  const auto limits = with_border(64);
  const auto guesses = std::make_shared<test_guesser>(3, 1.0);
  machine m(100, true, limits, 0, guesses);
  const auto a = make(1, numbered_tokens(40), 50);
  submit(m, a);
  m.drain();
  check_transcripts(m, a);
  CHECK(guesses->accepted > 3);
}
