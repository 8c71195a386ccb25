// The records of steps that a scheduler sends while it is watched.
#include "runtime/scheduling/step_record.hpp"
#include "tests/actors/worker_group.hpp"

#include <caf/send.hpp>

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("a scheduler sends a record of each step while it is watched, and nothing else") {
  worker_group workers;
  std::vector<event> events;
  auto& records = workers.script->records;
  const auto run = [&] {
    workers.submit({4, 5, 6, 7, 8}, 6, events);
    workers.coordinator.run();
  };
  run();
  CHECK(records.empty());
  caf::anon_send(workers.scheduler, watch_atom::value, true);
  const auto before = workers.ask<scheduler_counters>(workers.scheduler);
  run();
  const auto after = workers.ask<scheduler_counters>(workers.scheduler);
  REQUIRE(records.size() == after.steps - before.steps);
  std::uint64_t decode = 0, prefill = 0, step = before.steps;
  for (const auto& record : records) {
    CHECK(record->step == ++step);
    CHECK(record->remark.empty());
    decode += record->rows.decode, prefill += record->rows.prefill;
  }
  CHECK(decode == after.decode_rows - before.decode_rows);
  CHECK(prefill == after.prefill_rows - before.prefill_rows);
  CHECK(decode > 0);
  CHECK(prefill > 0);
  CHECK(records.front()->sequences.running == 1);
  CHECK(records.back()->sequences.running == 0);
  const auto watched = records.size();
  caf::anon_send(workers.scheduler, watch_atom::value, false);
  run();
  CHECK(records.size() == watched);
}

TEST_CASE("a watch that begins amid a step leaves out what was planned before it") {
  worker_group workers;
  std::vector<event> events;
  workers.submit({1, 2, 3}, 20, events);
  while (ids(events).size() < 4)
    REQUIRE(workers.coordinator.try_run_once());
  const auto planned = [&] { return workers.script->records; };
  caf::anon_send(workers.scheduler, watch_atom::value, true);
  workers.coordinator.run();
  REQUIRE_FALSE(planned().empty());
  CHECK(planned().size() < 20);
  for (const auto& record : planned())
    CHECK(record->rows.decode == 1);
}
