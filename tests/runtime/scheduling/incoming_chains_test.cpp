#include "runtime/scheduling/blocks/incoming_chains.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

incoming_chains::time_point second_of(int s) { return incoming_chains::time_point(std::chrono::seconds(s)); }

} // namespace

TEST_CASE("a chain is whole once its last block is there, and then no longer under way") {
  incoming_chains chains;
  REQUIRE(chains.expect(7, 5, second_of(0)));
  CHECK_FALSE(chains.arrived(7, 3, second_of(1)));
  CHECK(chains.arrived(7, 5, second_of(2)));
  CHECK(chains.under_way() == 0);
  CHECK_FALSE(chains.arrived(7, 5, second_of(2)));
  CHECK_FALSE(chains.arrived(8, 100, second_of(2))); // which nobody offered
}

TEST_CASE("a prompt without a full block is whole at once") {
  incoming_chains chains;
  REQUIRE(chains.expect(7, 0, second_of(0)));
  CHECK(chains.arrived(7, 0, second_of(0)));
}

TEST_CASE("what is offered again replaces what was, as a request that was preempted") {
  incoming_chains chains;
  REQUIRE(chains.expect(7, 5, second_of(0)));
  REQUIRE(chains.expect(7, 9, second_of(1)));
  CHECK_FALSE(chains.arrived(7, 5, second_of(2)));
  CHECK(chains.arrived(7, 9, second_of(2)));
}

TEST_CASE("senders that fall silent are forgotten, and there may be only so many") {
  incoming_chains chains;
  for (std::uint64_t i = 1; i <= incoming_chains::most; ++i)
    REQUIRE(chains.expect(i, 2, second_of(0)));
  CHECK_FALSE(chains.expect(0, 2, second_of(1)));
  CHECK(chains.expect(1, 2, second_of(1)));         // it is one of them
  CHECK_FALSE(chains.arrived(2, 1, second_of(50))); // still alive
  CHECK(chains.expect(0, 2, second_of(70)));
  CHECK(chains.under_way() == 2);
  CHECK(chains.arrived(2, 2, second_of(71)));
}
