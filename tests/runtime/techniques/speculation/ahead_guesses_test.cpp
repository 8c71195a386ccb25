#include "runtime/techniques/speculation/ahead_guesses.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

using ids = std::vector<token_id>;

/// Whether it guesses ahead in most of the last of many steps: each takes 20 ms and saves so much in one of two.
bool goes_on(double saved, double longer) {
  ahead_account account;
  int tried = 0;
  for (int step = 0; step < 1000; ++step) {
    const bool beside = account.tries();
    tried += beside && step >= 500;
    account.finished(20 + (beside ? longer : 0), 20 + longer / 2, beside);
    if (beside)
      account.saved(step % 2 == 0 ? saved : 0);
  }
  return tried > 250;
}

} // namespace

TEST_CASE("what was guessed ahead is left once all before it has come, and thrown away if anything else has") {
  const ids behind{7, 8, 9};
  struct expectation {
    ids came, rest;
  };
  for (const auto& [came, rest] : {expectation{{4, 5, 7}, {8, 9}},
                                   {{4, 5, 7, 8}, {9}},
                                   {{4, 5, 7, 8, 9}, {}},
                                   {{4, 5, 6}, {}},
                                   {{4, 6}, {}},
                                   {{4, 5}, {7, 8, 9}},
                                   {{1}, {}}}) {
    for (const bool late : {false, true}) {
      CAPTURE(came);
      CAPTURE(late);
      ahead_guesses ahead({4, 5});
      if (!late)
        ahead.answered(behind);
      ahead.came(came);
      if (late) {
        CHECK(ahead.rest().empty());
        ahead.answered(behind);
      }
      CHECK(ahead.rest() == rest);
      CHECK(ahead.is_open() == !rest.empty());
    }
  }
}

TEST_CASE("nobody waits for guesses behind a wrong one") {
  ahead_guesses right({4, 5}), wrong({4, 5});
  CHECK(right.is_open());
  right.came(ids{4, 5, 7});
  CHECK(right.is_open()); // the draft model may have guessed the last one
  wrong.came(ids{4, 6});
  CHECK_FALSE(wrong.is_open());
  right.answered({});
  CHECK_FALSE(right.is_open());
  CHECK(right.rest().empty());
}

TEST_CASE("guessing ahead goes on where it saves more than it costs, and is tried seldom where it does not") {
  CHECK(goes_on(4, 0));
  CHECK(goes_on(4, 1));
  CHECK_FALSE(goes_on(4, 4)); // 2 ms a step are saved
  CHECK_FALSE(goes_on(0, 1));
}
