#include "runtime/scheduling/request_ledger.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace troupe;

namespace {

using time_point = request_ledger::time_point;

time_point at(int ms) { return time_point() + std::chrono::hours(1) + std::chrono::milliseconds(ms); }

} // namespace

TEST_CASE("the parts of a request's time sum to the whole, whatever it does") {
  std::mt19937 random(7);
  request_ledger ledger(at(0));
  int now = 0;
  for (int i = 0; i < 1000; ++i) {
    now += static_cast<int>(random() % 5);
    const wait_state state{static_cast<wait_cause>(random() % wait_causes), static_cast<double>(random() % 3) / 2};
    const int late = static_cast<int>(random() % 3); // another thread has read the clock before
    if (random() % 4 == 0)
      ledger.admit(i, state, at(now - late));
    else
      ledger.enter(state, at(now - late));
    CHECK(ledger.seen(at(now)).parts.total() == doctest::Approx(now));
  }
  ledger.close(at(now));
  CHECK(ledger.parts().total() == doctest::Approx(now));
  for (const auto ms : ledger.parts().ms)
    CHECK(ms >= 0);
}

TEST_CASE("time counts as what a request does, and the share of others' prompts apart") {
  request_ledger ledger(at(0));
  ledger.enter({wait_cause::decode, 0.25}, at(10));
  ledger.enter({wait_cause::decode, 0}, at(50));
  ledger.close(at(60));
  const auto parts = ledger.parts();
  CHECK(parts[wait_cause::queue] == doctest::Approx(10));
  CHECK(parts[wait_cause::decode] == doctest::Approx(30 + 10));
  CHECK(parts[wait_cause::others_prefill] == doctest::Approx(10));
}

TEST_CASE("what a scheduler says of a request that has left it is ignored") {
  request_ledger ledger(at(0));
  ledger.admit(3, {wait_cause::queue}, at(0));
  ledger.enter(3, {wait_cause::prefill}, at(5));
  ledger.admit(0, {wait_cause::restart}, at(10));
  ledger.enter(3, {wait_cause::decode}, at(20)); // its scheduler has died meanwhile
  ledger.admit(4, {wait_cause::restart}, at(30));
  ledger.enter(4, {wait_cause::decode}, at(40));
  ledger.close(at(50));
  const auto parts = ledger.parts();
  CHECK(parts[wait_cause::prefill] == doctest::Approx(5));
  CHECK(parts[wait_cause::restart] == doctest::Approx(30));
  CHECK(parts[wait_cause::decode] == doctest::Approx(10));
}

TEST_CASE("a request that has ended takes no more time") {
  request_ledger ledger(at(0));
  CHECK(ledger.seen(at(4)).parts[wait_cause::queue] == doctest::Approx(4));
  CHECK_FALSE(ledger.seen(at(4)).ended);
  ledger.generated(2);
  ledger.generated(1);
  ledger.close(at(5));
  ledger.enter({wait_cause::decode}, at(6));
  ledger.close(at(9));
  const auto last = ledger.seen(at(20));
  CHECK(last.ended);
  CHECK(last.tokens == 3);
  CHECK(last.parts.total() == doctest::Approx(5));
}
