// Messages and actors, counted while somebody watches.
#include "actors/actor_counts.hpp"
#include "tests/actors/worker_group.hpp"

#include <caf/actor_cast.hpp>
#include <caf/message_id.hpp>
#include <caf/send.hpp>

using namespace troupe;
using namespace troupe::testing;

namespace {

actor_load load_of(std::string_view kind) {
  for (const auto& each : actor_counts::all())
    if (each.kind == kind)
      return each;
  return {};
}

} // namespace

TEST_CASE("messages of actors are counted while somebody watches, and no others") {
  const auto before = load_of("scheduler");
  {
    worker_group workers;
    std::vector<event> events;
    const auto run = [&] {
      workers.submit({4, 5, 6, 7, 8}, 6, events);
      workers.coordinator.run();
    };
    run();
    CHECK(load_of("scheduler").alive == before.alive + 1);
    CHECK(load_of("scheduler").spawned == before.spawned + 1);
    CHECK(load_of("scheduler").handled == before.handled);
    actor_counts::begin_watch();
    workers.coordinator.run();
    const auto start = load_of("scheduler").handled;
    for (int i = 0; i < 3; ++i)
      caf::anon_send(workers.scheduler, request_paused{99, false});
    auto now = load_of("scheduler");
    CHECK(now.queued == 3);
    CHECK(now.handled == start);
    CHECK(now.waiting_ms > 0);
    REQUIRE(workers.coordinator.try_run_once());
    CHECK(load_of("scheduler").queued == 2);
    CHECK(load_of("scheduler").handled == start + 1);
    workers.coordinator.run();
    now = load_of("scheduler");
    CHECK(now.queued == 0);
    CHECK(now.handled == start + 3);
    CHECK(now.waiting_ms == 0);
    run();
    CHECK(load_of("scheduler").handled > start + 5);
    actor_counts::end_watch();
    const auto end = load_of("scheduler").handled;
    run();
    CHECK(load_of("scheduler").handled == end);
    // What came while nobody watched is handled without a trace in the queue.
    caf::anon_send(workers.scheduler, request_paused{99, false});
    caf::anon_send(workers.scheduler, request_paused{99, false});
    actor_counts::begin_watch();
    caf::anon_send(workers.scheduler, request_paused{99, false});
    CHECK(load_of("scheduler").queued == 1);
    workers.coordinator.run();
    CHECK(load_of("scheduler").queued == 0);
    actor_counts::end_watch();
  }
  CHECK(load_of("scheduler").alive == before.alive);
}

TEST_CASE("messages that are dropped, or handled when nobody watches anymore, leave no trace in a queue") {
  worker_group workers;
  workers.coordinator.run();
  const auto queued = [] { return load_of("scheduler").queued; };
  const auto pause = [&] { caf::anon_send(workers.scheduler, request_paused{99, false}); };
  actor_counts::begin_watch();
  for (int i = 0; i < 3; ++i)
    pause();
  CHECK(queued() == 3);
  actor_counts::end_watch();
  workers.coordinator.run();
  CHECK(queued() == 0);

  actor_counts::begin_watch();
  // Responses to requests that nobody waits for anymore, as when they come after their time-out.
  const auto target = caf::actor_cast<caf::strong_actor_ptr>(workers.scheduler);
  const auto before = load_of("scheduler").handled;
  for (int i = 0; i < 5; ++i)
    target->enqueue(nullptr, caf::make_message_id(1000 + i).response_id(), caf::make_message(i), nullptr);
  pause();
  CHECK(queued() == 6);
  workers.coordinator.run();
  CHECK(queued() == 0);
  CHECK(load_of("scheduler").handled == before + 6);

  // To an actor that ends before it gets there, and to one that has ended.
  pause();
  caf::anon_send_exit(workers.scheduler, caf::exit_reason::kill);
  pause();
  workers.coordinator.run();
  pause();
  CHECK(queued() == 0);
  actor_counts::end_watch();
}

TEST_CASE("a count of a mailbox follows what the mailbox says, and ends with its actor") {
  static actor_counts kind("counted in a test");
  {
    mailbox_count one(kind), other(kind);
    one.queued(), one.queued(), other.queued();
    CHECK(load_of("counted in a test").queued == 3);
    CHECK(one.take());
    one.handled();
    CHECK(load_of("counted in a test").queued == 2);
    other.end();
    other.queued(); // to an actor that has ended
    CHECK(load_of("counted in a test").queued == 1);
    CHECK(one.take());
    CHECK_FALSE(one.take());
    CHECK(load_of("counted in a test").queued == 0);
    one.queued();
    CHECK(load_of("counted in a test").alive == 2);
  }
  const auto now = load_of("counted in a test");
  CHECK(now.queued == 0);
  CHECK(now.alive == 0);
  CHECK(now.spawned == 2);
  CHECK(now.handled == 1);
}
