#include "tests/rounds.hpp"
#include "tests/runtime/scheduling/scheduler_machine.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::vector<token_id> prompt_of(std::mt19937& rng) {
  std::vector<token_id> tokens(16 + rng() % 90);
  const auto kind = rng() % 3; // prompts have beginnings in common
  const auto shared = rng() % tokens.size();
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<token_id>(i < shared ? 10 + kind * 100 + i : 10 + rng() % 900);
  return tokens;
}

/// Crowds whose content is kept outside sample what each sequence samples alone, also after restarts.
void check_crowds(bool recurrent) {
  const restored_borders restore;
  recurrent_layers = recurrent;
  int brought = 0, brought_states = 0;
  std::uint64_t adopted = 0, kept = 0, lost = 0, states_kept = 0, states_adopted = 0;
  for (unsigned seed = 0; seed < static_cast<unsigned>(rounds(40)); ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(seed);
    const auto shelf = std::make_shared<machine::shelf>();
    std::vector<submission> all;
    for (std::uint64_t id = 1; id <= 12; ++id) {
      all.push_back(make(id, prompt_of(rng), 1 + static_cast<int>(rng() % 30), 1 + static_cast<int>(rng() % 2)));
      if (rng() % 4 == 0)
        steer_by(all.back(), 1 + rng() % 2);
    }
    for (int start = 0; start < 3; ++start) {
      scheduler_limits limits{static_cast<std::int32_t>(8 + rng() % 60), 4};
      limits.recurrent = recurrent;
      const auto blocks = static_cast<int>(10 + rng() % 30), host_blocks = static_cast<int>(rng() % 6);
      machine m(blocks, true, limits, host_blocks, nullptr, static_cast<int>(1 + rng() % 12));
      m.keep_on(shelf, 1 + rng() % 6, static_cast<int>(rng() % 4));
      for (auto a : all) {
        if (rng() % 4 > 0)
          m.bring(a);
        submit(m, a);
        for (auto n = rng() % 5; n > 0; --n)
          switch (rng() % 3) {
            case 0: m.plan(); break;
            case 1: m.execute(); break;
            default: m.book();
          }
        if (rng() % 4 == 0)
          m.bring(all[rng() % all.size()]); // also late, or for nothing
      }
      m.drain();
      for (const auto& a : all)
        check_transcripts(m, a);
      const auto counters = m.manager.counters();
      CHECK(counters.in_use == 0);
      brought += m.brought;
      brought_states += m.brought_states;
      states_kept += counters.states_kept;
      states_adopted += counters.states_adopted;
      adopted += counters.adopted;
      kept += counters.kept;
      lost += counters.unkept;
    }
  }
  CHECK(brought > 30);
  CHECK(adopted > 30);
  CHECK(kept > 30);
  CHECK(lost > 0);
  if (recurrent) {
    CHECK(brought_states > 30);
    CHECK(states_kept > 30);
    CHECK(states_adopted > 30);
  }
}

} // namespace

TEST_CASE(
  "with content kept outside, random crowds in tiny pools sample what each samples alone, also after restarts") {
  check_crowds(false);
}

TEST_CASE("with states kept outside, random crowds in tiny pools sample what each samples alone, also after restarts") {
  check_crowds(true);
}

TEST_CASE("a conversation goes on after a restart from the state that its answer ended with") {
  const restored_borders restore;
  const auto shelf = std::make_shared<machine::shelf>();
  std::vector<token_id> conversation;
  for (token_id i = 0; i < 150; ++i)
    conversation.push_back(11 + i);
  for (std::uint64_t turn = 1; turn <= 6; ++turn) {
    scheduler_limits limits{512, 8, 100, 2};
    limits.recurrent = recurrent_layers = true;
    machine m(200, true, limits);
    m.keep_on(shelf, 1000, 1000);
    const auto a = make(turn, conversation, 50);
    for (int tries = 0; tries < 30; ++tries) { // now and then a block is missing
      m.bring(a);
      m.execute(); // its images are there for the next
    }
    submit(m, a);
    m.drain();
    m.keep_rest();
    check_transcripts(m, a);
    const auto started = m.sched.collect_started();
    REQUIRE(started.size() == 1);
    CAPTURE(turn);
    if (turn > 1) // all that was computed before: not its last token, nor this turn's
      CHECK(started.front().cached_tokens >= std::ssize(conversation) - 20 - 1 - kernels::block_tokens);
    const auto& answer = m.transcripts[{turn, 0}];
    conversation.insert(conversation.end(), answer.begin(), answer.end());
    for (token_id said = 0; said < 20; ++said)
      conversation.push_back(500 + static_cast<token_id>(turn) + said);
  }
}
