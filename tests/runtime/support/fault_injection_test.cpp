#include "runtime/support/fault_injection.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// Passages from 1 on at which a rule strikes among so many.
std::vector<int> strikes(const fault_rule& rule, int passages) {
  fault_plan plan({rule}, {});
  std::vector<int> found;
  for (int i = 1; i <= passages; ++i)
    if (plan.pass("sampler", 0, 0, {}))
      found.push_back(i);
  return found;
}

} // namespace

TEST_CASE("a fault strikes each so many passages, as often as it may") {
  CHECK(strikes({.kind = "sampler", .every_passages = 3, .count = 4}, 20) == std::vector{3, 6, 9, 12});
  CHECK(strikes({.kind = "sampler", .every_passages = 1, .count = 2}, 20) == std::vector{1, 2});
}

TEST_CASE("with a seed the distances of faults are drawn around the period, and the same seed draws the same") {
  const fault_rule rule{.kind = "sampler", .every_passages = 100, .count = 1000, .seed = 5};
  const auto found = strikes(rule, 100'000);
  CHECK(found.size() > 950);
  CHECK(found.size() < 1050);
  for (std::size_t i = 1; i < found.size(); ++i) {
    CHECK(found[i] - found[i - 1] >= 50);
    CHECK(found[i] - found[i - 1] <= 150);
  }
  CHECK(found == strikes(rule, 100'000));
  auto other = rule;
  other.seed = 6;
  CHECK(found != strikes(other, 100'000));
}

TEST_CASE("a fault that goes by time strikes at the first passage behind it") {
  fault_plan plan({{.kind = "sampler", .every = 10ms, .count = 2}}, {});
  const auto at = [&](std::chrono::milliseconds when) {
    return plan.pass("sampler", 0, 0, fault_plan::clock::time_point(when)).has_value();
  };
  CHECK_FALSE(at(9ms));
  CHECK(at(12ms));
  CHECK_FALSE(at(21ms));
  CHECK(at(22ms));
  CHECK_FALSE(at(100ms));
  CHECK(plan.rules().front().struck == 2);
}

TEST_CASE("a fault strikes its own kind, replica and stage alone") {
  fault_plan plan({{.kind = "executor", .replica = 1, .stage = 2, .every_passages = 1}}, {});
  CHECK_FALSE(plan.pass("sampler", 1, 2, {}));
  CHECK_FALSE(plan.pass("executor", 0, 2, {}));
  CHECK_FALSE(plan.pass("executor", 1, 1, {}));
  CHECK_FALSE(plan.pass("executor", -1, -1, {}));
  CHECK(plan.pass("executor", 1, 2, {}));
}

TEST_CASE("a handler that runs out of memory gets a little, never the same") {
  fault_plan plan({{.kind = "sampler", .what = fault_rule::effect::out_of_memory, .every_passages = 1, .count = 2}},
                  {});
  const auto first = plan.pass("sampler", 0, 0, {}), second = plan.pass("sampler", 0, 0, {});
  REQUIRE(second);
  CHECK(first->bytes > 0);
  CHECK(first->bytes < 16'384);
  CHECK(first->bytes != second->bytes);
}

TEST_CASE("without a plan nothing of the process fails, and a plan that is replaced tells how often it struck") {
  CHECK_FALSE(fault_injection::armed());
  CHECK_FALSE(fault_injection::refuses("disk"));
  CHECK(fault_injection::set({{.kind = "disk", .every_passages = 2, .count = 1}}).empty());
  CHECK(fault_injection::armed());
  CHECK_FALSE(fault_injection::refuses("disk"));
  CHECK(fault_injection::refuses("disk"));
  CHECK_FALSE(fault_injection::refuses("disk"));
  const auto before = fault_injection::set({});
  REQUIRE(before.size() == 1);
  CHECK(before.front().struck == 1);
  CHECK_FALSE(fault_injection::armed());
}
