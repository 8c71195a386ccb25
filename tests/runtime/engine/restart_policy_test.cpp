#include "runtime/engine/restart_policy.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace std::chrono_literals;

TEST_CASE("restarts are limited within a time window") {
  restart_policy policy(3, 60s);
  const restart_policy::clock::time_point start{1h};
  CHECK(policy.restart(start));
  CHECK(policy.restart(start + 1s));
  CHECK(policy.restart(start + 59s));
  CHECK_FALSE(policy.restart(start + 59s));
  CHECK(policy.restart(start + 60s)); // the first is long ago
  CHECK_FALSE(policy.restart(start + 60s));
  CHECK(policy.restart(start + 61s));
  CHECK(policy.restart(start + 1h));
}

TEST_CASE("the first restart is at once, and later ones wait ever longer") {
  restart_policy policy(10, 60s);
  std::chrono::milliseconds last{0};
  CHECK(*policy.restart({}) == last);
  for (int i = 0; i < 3; ++i) {
    const auto wait = *policy.restart({});
    CHECK(wait >= 500ms);
    CHECK(wait > last);
    last = wait;
  }
  CHECK(*policy.restart(restart_policy::clock::time_point(2min)) == 0ms);
}

TEST_CASE("without restarts the first failure is the last") { CHECK_FALSE(restart_policy(0, 60s).restart({})); }
