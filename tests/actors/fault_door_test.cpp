// Faults on purpose at the door of actors.
#include "actors/fault_door.hpp"
#include "actors/faults.hpp"
#include "tests/actors/worker_group.hpp"

#include <caf/event_based_actor.hpp>

using namespace troupe;
using namespace troupe::testing;

namespace {

struct no_faults_after {
  ~no_faults_after() { fault_injection::set({}); }
};

/// Why `actor` ended once it had a message.
template <class Handle>
fault end_of(worker_group& workers, const Handle& actor) {
  caf::scoped_actor self{workers.system};
  self->monitor(actor);
  workers.coordinator.run();
  std::optional<fault> seen;
  self->receive([&](const caf::down_msg& down) { seen = fault_of(down.reason, workers.system); },
                caf::after(std::chrono::seconds(0)) >> [] {});
  REQUIRE(seen);
  return *seen;
}

fault end_by(fault_rule::effect what) {
  const no_faults_after ends;
  worker_group workers;
  fault_injection::set({{.kind = "scheduler", .what = what, .every_passages = 1}});
  caf::anon_send(workers.scheduler, request_paused{99, false});
  return end_of(workers, workers.scheduler);
}

} // namespace

TEST_CASE("an exception on purpose ends an actor as a handler's own does") {
  const auto seen = end_by(fault_rule::effect::exception);
  CHECK(seen.at_work);
  CHECK(seen.recoverable);
  CHECK(seen.why.message == injected);
}

TEST_CASE("an actor that is killed on purpose makes nobody suspect") {
  const auto seen = end_by(fault_rule::effect::kill);
  CHECK_FALSE(seen.at_work);
  CHECK_FALSE(seen.starting);
  CHECK(seen.recoverable);
}

TEST_CASE("a delayed message is handled all the same") {
  const no_faults_after ends;
  worker_group workers;
  std::vector<event> events;
  fault_injection::set({{.kind = "scheduler",
                         .what = fault_rule::effect::delay,
                         .every_passages = 1,
                         .count = 3,
                         .pause = std::chrono::milliseconds(1)}});
  workers.submit({4, 5, 6}, 3, events);
  workers.coordinator.run();
  CHECK(ids(events) == std::vector<token_id>{7, 8, 9});
  CHECK(fault_injection::rules().front().struck == 3);
}

TEST_CASE("a request whose actor is killed on purpose tells its client, once") {
  const no_faults_after ends;
  worker_group workers;
  std::vector<event> events;
  fault_injection::set({{.kind = "request", .what = fault_rule::effect::kill, .every_passages = 4}});
  workers.submit({4, 5, 6}, 8, events);
  workers.coordinator.run();
  REQUIRE(!events.empty());
  const auto* why = std::get_if<error>(&events.back());
  REQUIRE(why);
  CHECK(why->message == injected);
  CHECK(workers.idle());
}

TEST_CASE("actors are of the place within whose scope they were spawned, and so are those that they spawn") {
  CHECK(spawning_in::now().replica == -1);
  {
    const spawning_in outer({.replica = 1});
    const spawning_in inner({.replica = 1, .stage = 2});
    CHECK(spawning_in::now().stage == 2);
  }
  CHECK(spawning_in::now().replica == -1);
  const no_faults_after ends;
  worker_group workers; // spawned in no replica
  std::optional<spawning_in> there(std::in_place, actor_place{.replica = 1});
  workers.restart();
  there.reset();
  fault_injection::set({{.kind = "scheduler", .what = fault_rule::effect::kill, .replica = 0, .every_passages = 1},
                        {.kind = "scheduler", .what = fault_rule::effect::kill, .replica = 1, .every_passages = 2}});
  caf::anon_send(workers.scheduler, request_paused{99, false});
  workers.coordinator.run();
  CHECK(fault_injection::rules()[1].struck == 0);
  caf::anon_send(workers.scheduler, request_paused{99, false});
  workers.coordinator.run();
  CHECK(fault_injection::rules()[0].struck == 0);
  CHECK(fault_injection::rules()[1].struck == 1);
}
