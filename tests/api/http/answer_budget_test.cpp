#include "api/http/answer_budget.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k = 1 << 10;
constexpr auto free_of_charge = answer_budget::free_bytes;
const answer_budget::clock::time_point start{};

struct reader {
  int lost = 0;
  answer_budget::account account;
  explicit reader(answer_budget& budget) : account(budget, [this] { ++lost; }) {}
};

} // namespace

TEST_CASE("Answers take from one budget what exceeds the first bytes of each, and give it back") {
  answer_budget budget(100 * k);
  reader a(budget), b(budget), c(budget);
  CHECK(a.account.add(free_of_charge));
  CHECK(budget.taken() == 0);
  CHECK(a.account.add(60 * k));
  CHECK(budget.taken() == 60 * k);
  CHECK_FALSE(b.account.add(free_of_charge + 41 * k));
  CHECK(b.account.add(free_of_charge + 40 * k));
  CHECK(c.account.add(free_of_charge)); // a short one gets through
  a.account.release(20 * k);
  CHECK(budget.taken() == 80 * k);
  a.account.release_all();
  CHECK(budget.taken() == 40 * k);
  {
    reader d(budget);
    CHECK(d.account.add(free_of_charge + 60 * k));
  }
  CHECK(budget.taken() == 40 * k);
  CHECK(a.lost + b.lost + c.lost == 0);
}

TEST_CASE("The slowest reader loses its answer first, and no more readers than necessary") {
  answer_budget budget(100 * k);
  reader stalled(budget), drips(budget), reads(budget), made(budget), newcomer(budget);
  for (auto* each : {&stalled, &drips, &reads, &made})
    REQUIRE(each->account.add(free_of_charge + 25 * k, start));
  for (auto* each : {&stalled, &drips, &reads})
    each->account.waits(start);
  CHECK_FALSE(newcomer.account.add(free_of_charge + 25 * k, start + 900ms)); // too early to tell
  for (int i = 1; i <= 20; ++i) {
    drips.account.wrote(12, start + i * 100ms);
    drips.account.waits(start + i * 100ms);
    reads.account.wrote(10 * k, start + i * 100ms);
    reads.account.waits(start + i * 100ms);
  }
  CHECK(newcomer.account.add(free_of_charge + 25 * k, start + 2s));
  CHECK(stalled.lost == 1);
  CHECK(drips.lost == 0);
  CHECK(newcomer.account.add(10 * k, start + 2s));
  CHECK(drips.lost == 1);
  CHECK_FALSE(newcomer.account.add(20 * k, start + 2s)); // neither the fast reader nor the one not yet written
  CHECK(reads.lost + made.lost + newcomer.lost == 0);
  CHECK_FALSE(stalled.account.add(1, start + 2s));
  stalled.account.release_all();
  CHECK(budget.taken() == 85 * k);
}

TEST_CASE("An answer that grows while its client does not read loses its place, not another its own") {
  answer_budget budget(100 * k);
  reader stalled(budget), made(budget);
  REQUIRE(made.account.add(free_of_charge + 50 * k, start));
  REQUIRE(stalled.account.add(free_of_charge + 40 * k, start));
  stalled.account.waits(start);
  CHECK_FALSE(stalled.account.add(20 * k, start));
  CHECK(stalled.lost == 1);
  CHECK(made.lost == 0);
  CHECK(budget.taken() == 50 * k);
}

TEST_CASE("A client that takes most of the budget loses the largest of its answers to another's") {
  answer_budget budget(100 * k);
  reader large(budget), small(budget), other(budget), third(budget);
  for (auto* each : {&large, &small})
    each->account.speak_for("a");
  other.account.speak_for("b");
  third.account.speak_for("c");
  REQUIRE(large.account.add(free_of_charge + 60 * k, start));
  REQUIRE(small.account.add(free_of_charge + 40 * k, start));
  CHECK(other.account.add(free_of_charge + 30 * k, start));
  CHECK(large.lost == 1);
  CHECK(small.lost == 0);
  CHECK_FALSE(small.account.add(50 * k, start)); // it would have most
  CHECK(third.account.add(free_of_charge + 30 * k, start));
  CHECK(small.lost + other.lost == 0);
}

TEST_CASE("An answer larger than the budget costs no other its place") {
  answer_budget budget(100 * k);
  reader stalled(budget), large(budget);
  REQUIRE(stalled.account.add(free_of_charge + 25 * k, start));
  stalled.account.waits(start);
  CHECK_FALSE(large.account.add(free_of_charge + 101 * k, start + 10s));
  CHECK(stalled.lost == 0);
}
