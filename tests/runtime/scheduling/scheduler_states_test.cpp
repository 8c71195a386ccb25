// Sequences with recurrent layers: what is found of their prefixes, and that states go where they belong.
#include "runtime/techniques/beams/technique.hpp"
#include "tests/runtime/scheduling/scheduler_machine.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

scheduler_limits with_states() {
  scheduler_limits limits{512, 8, 100, 2};
  limits.recurrent = recurrent_layers = true;
  limits.most_guesses = 4;
  return limits;
}

} // namespace

TEST_CASE("a prefix of a sequence with states is found up to its last snapshot") {
  const restored_borders restore;
  machine m(400, true, with_states());
  CHECK(cached_of(m, 1, numbered_tokens(100)) == 0);
  CHECK(cached_of(m, 2, numbered_tokens(100)) == 96); // the end of the prompt's full blocks
  CHECK(cached_of(m, 3, numbered_tokens(60)) == 0);   // blocks, but no state: it is snapshot now
  CHECK(cached_of(m, 4, numbered_tokens(60)) == 48);
  CHECK(cached_of(m, 5, numbered_tokens(50)) == 48);
  CHECK(m.manager.counters().in_use == 0);
}

TEST_CASE("without snapshots nothing is found, and nothing else changes") {
  const restored_borders restore;
  machine m(400, true, with_states(), 0, nullptr, 0);
  CHECK(cached_of(m, 1, numbered_tokens(100), 20) == 0);
  CHECK(cached_of(m, 2, numbered_tokens(100), 20) == 0);
}

TEST_CASE("all of a growing conversation is found in each turn but a block") {
  const restored_borders restore;
  machine m(2000, true, with_states());
  auto conversation = numbered_tokens(150);
  for (std::uint64_t turn = 1; turn <= 12; ++turn) {
    const auto prompt = conversation;
    const auto found = cached_of(m, turn, prompt, 90);
    CAPTURE(turn);
    if (turn > 1)
      CHECK(found >= std::ssize(conversation) - 40 - 1 - kernels::block_tokens);
    const auto& answer = m.transcripts[{turn, 0}];
    conversation.insert(conversation.end(), answer.begin(), answer.end());
    for (token_id said = 0; said < 40; ++said)
      conversation.push_back(500 + static_cast<token_id>(turn) + said);
  }
  const auto c = m.manager.counters();
  CHECK(c.snapshots_restored == 11);
  CHECK(c.snapshots_in_use <= c.snapshots);
}

TEST_CASE("a turn that begins its answer otherwise goes on from the end of the prompt, or a block before") {
  const restored_borders restore;
  for (int length = 145; length < 161; ++length) { // the prompt's last tokens begin the answer: they are not repeated
    CAPTURE(length);
    machine m(2000, true, with_states());
    const auto prompt = numbered_tokens(length);
    CHECK(cached_of(m, 1, prompt, 60) == 0);
    constexpr int begun = 4; // as "<think>\n\n</think>\n\n" does
    auto next = prompt;
    next.resize(next.size() - begun);
    for (token_id said = 0; said < 60; ++said)
      next.push_back(500 + said);
    CHECK(cached_of(m, 2, next) >= length - begun - (kernels::block_tokens - 1));
  }
}

TEST_CASE("conversations that share a system prompt find it from the third on") {
  const restored_borders restore;
  machine m(2000, true, with_states());
  for (std::uint64_t i = 1; i <= 6; ++i) {
    auto prompt = numbered_tokens(300);
    for (token_id said = 0; said < 60; ++said)
      prompt.push_back(400 + static_cast<token_id>(100 * i) + said);
    const auto found = cached_of(m, i, prompt, 10);
    CAPTURE(i);
    CHECK(found >= (i > 2 ? 270 : 0));
  }
}

TEST_CASE("the least recently used snapshots are given up for others") {
  const restored_borders restore;
  machine m(2000, true, with_states(), 0, nullptr, 2);
  CHECK(cached_of(m, 1, numbered_tokens(30)) == 0);
  CHECK(cached_of(m, 2, numbered_tokens(30, 200)) == 0);
  CHECK(cached_of(m, 3, numbered_tokens(30)) == 16);
  CHECK(cached_of(m, 4, numbered_tokens(30, 400)) == 0); // in place of the second
  CHECK(cached_of(m, 5, numbered_tokens(30)) == 16);
  CHECK(cached_of(m, 6, numbered_tokens(30, 200)) == 0);
  CHECK(m.manager.counters().snapshots_evicted == 2);
}

TEST_CASE("snapshots of evicted blocks are free again") {
  const restored_borders restore;
  machine m(14, true, with_states());
  for (std::uint64_t i = 1; i <= 20; ++i)
    cached_of(m, i, numbered_tokens(100, static_cast<token_id>(11 + 40 * i)));
  const auto c = m.manager.counters();
  CHECK(c.evicted > 0);
  CHECK(c.snapshots_evicted == 0);
  CHECK(c.snapshots_in_use < 6);
}

TEST_CASE("snapshots of blocks that host memory gives up, too, are free again") {
  const restored_borders restore;
  machine m(14, true, with_states(), 4);
  for (std::uint64_t i = 1; i <= 20; ++i)
    cached_of(m, i, numbered_tokens(100, static_cast<token_id>(11 + 40 * i)));
  const auto c = m.manager.counters();
  CHECK(c.swapped_out > 4);
  CHECK(c.snapshots_evicted == 0);
  CHECK(c.snapshots_in_use < 8);
}

TEST_CASE("a preempted sequence goes on from its last snapshot") {
  const restored_borders restore;
  machine m(12, true, with_states());
  std::vector<submission> all;
  for (std::uint64_t i = 1; i <= 6; ++i)
    all.push_back(make(i, numbered_tokens(40, static_cast<token_id>(100 * i)), 60, 2));
  for (const auto& a : all)
    submit(m, a);
  m.drain();
  for (const auto& a : all)
    check_transcripts(m, a);
  CHECK(m.sched.counters().preemptions > 0);
  CHECK(m.manager.counters().in_use == 0);
}

TEST_CASE("wrong guesses leave no trace in a state") {
  const restored_borders restore;
  const auto guesses = std::make_shared<test_guesser>(3, 0.6);
  machine m(100, true, with_states(), 0, guesses);
  const auto a = make(1, numbered_tokens(40), 50), b = make(2, numbered_tokens(40), 50, 3);
  submit(m, a);
  submit(m, b);
  m.drain();
  check_transcripts(m, a);
  check_transcripts(m, b);
  CHECK(guesses->accepted > 3);
  CHECK(guesses->rejected > 3);
}

TEST_CASE("beams and siblings have copies of their parents' states") {
  const restored_borders restore;
  for (const int blocks : {14, 40}) {
    machine m(blocks, true, with_states());
    auto beams = make(1, numbered_tokens(58), 20);
    auto& params = beams.sampling;
    params.techniques.set(troupe::beams({.width = 3}));
    const auto siblings = make(2, numbered_tokens(50, 300), 24, 3);
    submit(m, beams);
    submit(m, siblings);
    m.drain();
    CHECK(m.group_results[1] == solo_group(beams));
    check_transcripts(m, siblings);
    CHECK(m.manager.counters().in_use == 0);
  }
}

TEST_CASE("a state cache refuses steps that do not follow what it holds") {
  kernels::state_cache states({.layers = 1, .slots = 3, .running = 2, .pending = 2});
  const auto step = [&](int slot, int first, int rows, int pending, std::vector<kernels::state_save> saves = {}) {
    const kernels::sequence_rows s{.rows = rows, .first_position = first};
    const kernels::sequence_state state{slot, pending};
    states.begin({&s, 1}, {&state, 1}, saves);
    states.end();
  };
  CHECK_THROWS_AS(step(0, 5, 1, 0), std::invalid_argument); // nothing was computed
  step(0, 0, 7, 2);
  CHECK_THROWS_AS(step(0, 4, 1, 0), std::invalid_argument);
  CHECK_THROWS_AS(step(0, 8, 1, 0), std::invalid_argument);
  CHECK_THROWS_AS(step(3, 0, 1, 0), std::invalid_argument);
  CHECK_THROWS_AS(step(2, 0, 2, 1), std::invalid_argument); // a snapshot has no rows pending
  CHECK_THROWS_AS(step(0, 6, 3, 3), std::invalid_argument);
  CHECK_THROWS_AS(step(0, 6, 3, 2, {{0, 2, 2}}), std::invalid_argument);
  step(0, 6, 3, 2, {{0, 1, 2}});
  CHECK(states.runs().front().replayed == 1);
  CHECK(states.runs().front().saves.size() == 1);
  step(2, 7, 1, 0); // goes on from the save
  const kernels::sequence_rows both[] = {{.rows = 2, .first_position = 8},
                                         {.first_row = 2, .rows = 3, .first_position = 9}};
  const kernels::sequence_state one[] = {{0, 1}, {0, 0}};
  states.begin(both, one, {}); // twice in a step: 8 and 9, then 9 to 11
  CHECK(states.first_runs().size() == 1);
  CHECK(states.runs()[0].next == 1);
  CHECK(states.runs()[1].replayed == 0);
  const auto branch = [&](std::uint64_t behind, int first, int rows) {
    const kernels::sequence_rows tree[] = {{.rows = 3, .first_position = 8},
                                           {.first_row = 3, .rows = rows, .first_position = first}};
    const kernels::sequence_state lines[] = {{0, 1}, {0, rows, behind, true}};
    states.begin(tree, lines, {});
  };
  branch(0, 10, 1);
  CHECK(states.runs()[1].logged == 1);
  branch(1, 11, 1);
  CHECK(states.runs()[1].replayed == 1);
  CHECK_THROWS_AS(branch(1, 10, 1), std::invalid_argument); // behind a row that is not before it
  CHECK_THROWS_AS(branch(2, 11, 1), std::invalid_argument); // behind one that is not there
  CHECK_THROWS_AS(branch(1, 11, 2), std::invalid_argument); // more than the log holds
  const kernels::sequence_rows one_row{.rows = 1, .first_position = 8};
  const kernels::sequence_state of_no_tree{0, 1, 0, true};
  CHECK_THROWS_AS(states.begin({&one_row, 1}, {&of_no_tree, 1}, {}), std::invalid_argument);
  states.begin({}, {}, {}); // which is not done
  step(0, 9, 1, 0);         // all that was pending is accepted
}
