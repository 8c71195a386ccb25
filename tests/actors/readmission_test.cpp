// Requests whose worker group ends: readmission to the next one, and the time between the two.
#include "actors/faults.hpp"
#include "actors/messages/sampling.hpp"
#include "tests/actors/worker_group.hpp"

#include <exception>
#include <numeric>
#include <stdexcept>

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("when the scheduler dies, requests resume with the next one") {
  for (std::size_t tokens = 0; tokens < 20; ++tokens) {
    CAPTURE(tokens);
    worker_group workers;
    std::vector<event> one, three, waiting;
    workers.submit({1}, 20, one);
    workers.submit({5}, 18, three, 3);
    workers.submit({10}, 3, waiting); // there is no place for a fifth sequence yet
    while (ids(one).size() < tokens)
      REQUIRE(workers.coordinator.try_run_once());
    workers.restart();
    const auto counted = [](token_id first, int count) {
      std::vector<token_id> all(static_cast<std::size_t>(count));
      std::iota(all.begin(), all.end(), first);
      return all;
    };
    CHECK(ids(one) == counted(2, 20));
    for (std::uint32_t i = 0; i < 3; ++i)
      CHECK(ids(three, i) == counted(6, 18));
    CHECK(ids(waiting) == counted(11, 3));
    for (auto* events : {&one, &three, &waiting})
      REQUIRE(std::holds_alternative<done_event>(events->back()));
    CHECK(std::get<done_event>(three.back()).completion_tokens == 54);
    CHECK(workers.idle());
  }
}

TEST_CASE("stale messages of an old worker group are ignored") {
  worker_group workers;
  std::vector<event> events;
  const auto request = workers.submit({1}, 20, events);
  while (ids(events).size() < 4)
    REQUIRE(workers.coordinator.try_run_once());
  const auto old = workers.script->last_number;
  const auto stale = [&] {
    caf::anon_send(request, token_sampled{{old, 0}, {.id = 30}});
    caf::anon_send(request, failed_atom::value, old, error{errc::internal, "of old", {}});
    caf::anon_send(request, started_atom::value, old, 17, caf::timespan(0));
  };
  workers.end();
  stale();
  workers.coordinator.run();
  workers.start();
  caf::anon_send(request, admit_atom::value, workers.script->next());
  stale();
  workers.coordinator.run();
  std::vector<token_id> expected(20);
  std::iota(expected.begin(), expected.end(), 2);
  CHECK(ids(events) == expected);
  REQUIRE(std::holds_alternative<done_event>(events.back()));
  CHECK(std::get<done_event>(events.back()).cached_tokens == 0);
  CHECK(workers.idle());
}

TEST_CASE("a paused request stays paused in the next worker group and keeps its deadline") {
  worker_group workers;
  std::vector<event> events;
  const auto request = workers.submit({1}, 20, events);
  while (ids(events).size() < 4)
    REQUIRE(workers.coordinator.try_run_once());
  caf::anon_send(request, pause_atom::value, true);
  workers.coordinator.run();
  workers.coordinator.advance_time(std::chrono::seconds(35));
  const auto before = ids(events).size();
  workers.restart();
  CHECK(ids(events).size() <= before + 2); // what was planned when the pause came
  CHECK(workers.ask<scheduler_counters>(workers.scheduler).paused == 1);
  SUBCASE("resumed, it finishes") {
    caf::anon_send(request, pause_atom::value, false);
    workers.coordinator.run();
    CHECK(ids(events).size() == 20);
    CHECK(std::holds_alternative<done_event>(events.back()));
  }
  SUBCASE("left alone, it times out, counted from its submission") {
    for (int i = 0; i < 3; ++i)
      workers.coordinator.advance_time(std::chrono::seconds(10)), workers.coordinator.run();
    REQUIRE(std::holds_alternative<done_event>(events.back()));
    CHECK(std::get<done_event>(events.back()).choices.at(0).reason == finish_reason::timeout);
  }
  CHECK(workers.idle());
}

TEST_CASE("between two worker groups a request can be cancelled, refused and timed out") {
  worker_group workers;
  std::vector<event> running, fresh, bad, late;
  const auto request = workers.submit({1}, 20, running);
  while (ids(running).size() < 4)
    REQUIRE(workers.coordinator.try_run_once());
  workers.end();
  caf::anon_send(request, cancel_atom::value);
  caf::anon_send(workers.submit({1}, 20, fresh), cancel_atom::value);
  workers.submit({}, 20, bad);
  workers.submit({1}, 20, late);
  workers.coordinator.run();
  for (auto* events : {&running, &fresh})
    CHECK(std::get<done_event>(events->back()).choices.at(0).reason == finish_reason::cancelled);
  CHECK(std::get<error>(bad.back()).param == "prompt");
  CHECK(late.empty());
  for (int i = 0; i < 7; ++i)
    workers.coordinator.advance_time(std::chrono::seconds(10)), workers.coordinator.run();
  CHECK(std::get<error>(late.back()).code == errc::timeout);
}

TEST_CASE("requests report to their clients why no worker group follows") {
  worker_group workers;
  std::vector<event> events;
  workers.submit({1, 2, 3}, 90, events);
  while (ids(events).size() < 4)
    REQUIRE(workers.coordinator.try_run_once());
  workers.script->reply.model = nullptr;
  workers.script->reply.why = {errc::device, "the device is lost", {}};
  SUBCASE("the engine refuses") {
    caf::anon_send_exit(workers.scheduler, caf::exit_reason::kill);
    workers.coordinator.run();
    CHECK(std::get<error>(events.back()).message == "the device is lost");
  }
  SUBCASE("the engine has failed") {
    caf::scoped_actor self{workers.system};
    self->send_exit(workers.engine, exit_reason_of(std::make_exception_ptr(std::runtime_error("a bug"))));
    workers.coordinator.run();
    CHECK(std::get<error>(events.back()).message == "the engine has failed: a bug");
  }
  SUBCASE("the engine has died") {
    caf::anon_send_exit(workers.engine, caf::exit_reason::kill);
    workers.coordinator.run();
    CHECK(std::get<error>(events.back()).message == "the engine has stopped");
  }
}
