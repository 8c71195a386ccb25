#include "runtime/engine/deadlines.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace std::chrono_literals;

TEST_CASE("one timer serves all deadlines, in whatever order they are set") {
  deadlines<int> all;
  const deadlines<int>::time_point start{};
  CHECK(!all.due());
  all.set(1, start + 5s);
  REQUIRE(all.due() == start + 5s);
  all.armed(start + 5s);
  all.set(2, start + 9s);
  CHECK(!all.due()); // the timer fires before
  all.set(3, start + 2s);
  REQUIRE(all.due() == start + 2s);
  all.armed(start + 2s);
  all.erase(1);
  all.fired(start + 2s);
  REQUIRE(all.expired(start + 2s) == 3);
  all.erase(3);
  CHECK(!all.expired(start + 2s));
  REQUIRE(all.due() == start + 9s);
  all.armed(start + 9s);
  all.fired(start + 5s); // the shot for one that has ended
  CHECK(!all.expired(start + 5s));
  CHECK(!all.due());
  all.fired(start + 9s);
  REQUIRE(all.expired(start + 9s) == 2);
  all.erase(2);
  CHECK(!all.due());
}

TEST_CASE("a deadline that is set again replaces the first") {
  deadlines<int> all;
  const deadlines<int>::time_point start{};
  all.set(1, start + 1s);
  all.set(1, start + 3s);
  CHECK(!all.expired(start + 2s));
  CHECK(all.expired(start + 3s) == 1);
}
