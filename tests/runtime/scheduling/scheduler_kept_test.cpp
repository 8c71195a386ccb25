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

} // namespace

TEST_CASE(
  "with content kept outside, random crowds in tiny pools sample what each samples alone, also after restarts") {
  int brought = 0;
  std::uint64_t adopted = 0, kept = 0, lost = 0;
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
      machine m(static_cast<int>(10 + rng() % 30), true, {static_cast<std::int32_t>(8 + rng() % 60), 4},
                static_cast<int>(rng() % 6));
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
      adopted += counters.adopted;
      kept += counters.kept;
      lost += counters.unkept;
    }
  }
  CHECK(brought > 30);
  CHECK(adopted > 30);
  CHECK(kept > 30);
  CHECK(lost > 0);
}
