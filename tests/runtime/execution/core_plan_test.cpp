#include "runtime/execution/core_plan.hpp"

#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

using cores = std::vector<int>;

std::vector<int> threads_of(const core_plan& plan, int groups) {
  std::vector<int> all;
  for (int i = 0; i < groups; ++i)
    all.push_back(plan.group(i, 0, 0).threads);
  return all;
}

} // namespace

TEST_CASE("one group has all threads, and shares the machine as the system likes") {
  const machine_cores four{.numbers = {0, 1, 4, 5}};
  CHECK(core_plan(0, four).group(0, 0, 0).threads == 4);
  CHECK(core_plan(0, four).group(0, 0, 0).cores.empty());
  CHECK(core_plan(3, four).group(0, 0, 0).threads == 3);
  CHECK(core_plan(9, four).group(0, 0, 0).threads == 9);
}

TEST_CASE("threads count those of all groups, which get as many each") {
  const machine_cores eight{.numbers = {0, 1, 2, 3, 4, 5, 6, 7}};
  CHECK(threads_of(core_plan(0, eight, {.replicas = 2}), 2) == std::vector{4, 4});
  CHECK(threads_of(core_plan(7, eight, {.replicas = 3}), 3) == std::vector{3, 2, 2});
  CHECK(threads_of(core_plan(12, eight, {.replicas = 2}), 2) == std::vector{6, 6});
}

TEST_CASE("groups have neighbouring cores of their own where there are as many as threads") {
  const machine_cores five{.numbers = {0, 1, 2, 6, 7}};
  const core_plan all(0, five, {.replicas = 2});
  CHECK(all.group(0, 0, 0).cores == cores{0, 1, 2});
  CHECK(all.group(1, 0, 0).cores == cores{6, 7});
  const core_plan few(2, five, {.replicas = 2}); // the rest is divided, too
  CHECK(few.group(0, 0, 0).cores == cores{0, 1});
  CHECK(few.group(1, 0, 0).cores == cores{2, 6, 7});
  const core_plan more(6, five, {.replicas = 2});
  CHECK(more.group(0, 0, 0).cores.empty());
  CHECK(more.group(1, 0, 0).cores.empty());
}

TEST_CASE("ranks of a stage, and stages of a replica, are neighbours") {
  machine_cores on;
  for (int i = 0; i < 8; ++i)
    on.numbers.push_back(i);
  const core_plan plan(8, on, {.replicas = 2, .stages = 2, .ranks = 2});
  CHECK(plan.group(0, 0, 1).cores == cores{1});
  CHECK(plan.group(0, 1, 0).cores == cores{2});
  CHECK(plan.group(1, 0, 0).cores == cores{4});
  CHECK(plan.group(1, 1, 1).cores == cores{7});
}

TEST_CASE("every group has a thread, and fewer threads than groups are refused") {
  const machine_cores one{.numbers = {3}};
  CHECK(threads_of(core_plan(0, one, {.replicas = 2}), 2) == std::vector{1, 1});
  try {
    core_plan(1, one, {.replicas = 2});
    FAIL("accepted");
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_request);
    CHECK(f.what_failed().param == "threads");
  }
}

TEST_CASE("no more threads than a quota lets run, unless they are asked for") {
  const machine_cores limited{.numbers = {0, 1, 2, 3}, .quota = 2.5};
  CHECK(core_plan(0, limited).group(0, 0, 0).threads == 2);
  CHECK(core_plan(4, limited).group(0, 0, 0).threads == 4);
  CHECK(machine_cores{.numbers = {0, 1}, .quota = 0.5}.threads() == 1);
  CHECK(machine_cores{.numbers = {0, 1}, .quota = 2}.threads() == 2);
}
