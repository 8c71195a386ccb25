#include "tests/bench/tools/oracle_drafter.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("oracle: guesses the continuation, each token right with the given probability") {
  auto continuation = std::make_shared<std::vector<token_id>>();
  for (token_id t = 0; t < 4000; ++t)
    continuation->push_back(t % 50);
  for (const double acceptance : {0.0, 0.3, 0.8, 1.0}) {
    oracle_drafter d({continuation, acceptance, 9, 50}, 3);
    CHECK_FALSE(d.ready());
    d.append(std::vector<token_id>{7, 7, 7});
    int right = 0;
    for (int at = 0; at < 4000; at += 4) {
      std::vector<token_id> guesses, again;
      d.propose(4, guesses);
      d.propose(4, again);
      REQUIRE(guesses.size() == 4);
      CHECK(guesses == again);
      for (int i = 0; i < 4; ++i) {
        CHECK(guesses[as_size(i)] < 50);
        right += guesses[as_size(i)] == (at + i) % 50;
      }
      d.append(std::vector<token_id>{0, 0, 0, 0});
    }
    CHECK(right == doctest::Approx(4000 * acceptance).epsilon(0.05));
    CHECK_FALSE(d.ready());
    std::vector<token_id> none;
    d.propose(4, none);
    CHECK(none.empty());
  }
}
