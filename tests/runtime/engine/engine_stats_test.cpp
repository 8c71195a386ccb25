#include "runtime/engine/engine_stats.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>

using namespace troupe;

TEST_CASE("the counters of an engine are the sums of its replicas'") {
  replica_stats one{.number = 0}, two{.number = 1, .restarts = 2};
  one.scheduler.steps = 5, two.scheduler.steps = 7;
  one.scheduler.running = 1, two.scheduler.running = 2;
  one.blocks.in_use = 3, two.blocks.in_use = 4;
  const auto all = in_all({one, two});
  CHECK(all.total.restarts == 2);
  CHECK(all.total.scheduler.steps == 12);
  CHECK(all.total.scheduler.running == 3);
  CHECK(all.total.blocks.in_use == 7);
  REQUIRE(all.replicas.size() == 2);
  CHECK(all.replicas[1].scheduler.steps == 7);
}

TEST_CASE("what former lives counted is added to counters, and to no gauge") {
  former_lives<block_counters> former;
  block_counters counted;
  counted.evicted = 3, counted.in_use = 9;
  former.end(counted);
  counted.evicted = 4;
  former.end(counted);
  block_counters now;
  now.evicted = 1, now.in_use = 2;
  add_former(now, former.counted());
  CHECK(now.evicted == 8);
  CHECK(now.in_use == 2);
}

TEST_CASE("every statistic has a name of its own and says what it counts") {
  std::map<std::string, int> names;
  replica_stats s;
  s.restarts = 1, s.scheduler.steps = 2, s.blocks.copied = 3;
  for_each_statistic(s, [&](const statistic_info& about, std::uint64_t value) {
    CHECK(names.emplace(about.name, value).second);
    CHECK(well_named(about));
    CHECK(std::string(about.help).ends_with('.'));
  });
  CHECK(names.at("troupe_restarts_total") == 1);
  CHECK(names.at("troupe_steps_total") == 2);
  CHECK(names.at("troupe_kv_blocks_copied_total") == 3);
  CHECK_FALSE(well_named({statistic_info::kind::gauge, "troupe_things_total", ""}));
  CHECK_FALSE(well_named({statistic_info::kind::counter, "troupe_things", ""}));
}
