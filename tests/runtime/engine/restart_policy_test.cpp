#include "runtime/engine/restart_policy.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

TEST_CASE("a part that fails at once each time is started again at once, then after ever longer, and never given up") {
  restart_policy policy;
  std::vector<std::chrono::milliseconds> waits;
  for (int i = 0; i < 10; ++i)
    waits.push_back(policy.after(1ms));
  CHECK(waits == std::vector<std::chrono::milliseconds>{0ms, 50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5s, 5s});
  for (int i = 0; i < 100'000; ++i)
    CHECK(policy.after(1ms) == 5s);
}

TEST_CASE("the waits start over once it has run for ten times as long as the last one") {
  restart_policy policy;
  CHECK(policy.after(0ms) == 0ms);
  CHECK(policy.after(499ms) == 50ms);
  CHECK(policy.after(499ms) == 100ms);
  CHECK(policy.after(999ms) == 200ms);
  CHECK(policy.after(2s) == 0ms);
  for (int i = 0; i < 20; ++i)
    policy.after(400ms);
  CHECK(policy.after(49s) == 5s);
  CHECK(policy.after(50s) == 0ms);
}

TEST_CASE("what is killed every second is started again at once every time") {
  restart_policy policy;
  for (int seconds = 0; seconds < 600; ++seconds)
    CHECK(policy.after(1s) == 0ms);
}

TEST_CASE("the waits start over when the cause is known to be gone") {
  restart_policy policy;
  for (int i = 0; i < 9; ++i)
    policy.after(0ms);
  policy.forgive();
  CHECK(policy.after(0ms) == 0ms);
  CHECK(policy.after(0ms) == 50ms);
}
