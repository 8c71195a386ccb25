// The protocol between requests and one worker group.
#include "tests/actors/worker_group.hpp"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("a request's tokens reach its client in order, then one done event, and nothing stays behind") {
  worker_group workers;
  std::vector<event> a, b;
  workers.submit({1, 2, 3}, 5, a);
  workers.submit({10}, 3, b);
  workers.coordinator.run();
  CHECK(ids(a) == std::vector<token_id>{4, 5, 6, 7, 8});
  CHECK(ids(b) == std::vector<token_id>{11, 12, 13});
  REQUIRE(std::holds_alternative<done_event>(a.back()));
  CHECK(std::get<done_event>(a.back()).completion_tokens == 5);
  CHECK(workers.idle());
}

TEST_CASE("an end-of-sequence token ends a request with reason stop") {
  worker_group workers;
  std::vector<event> events;
  workers.submit({28}, 50, events);
  workers.coordinator.run();
  CHECK(ids(events) == std::vector<token_id>{29, 30, 31});
  CHECK(std::get<done_event>(events.back()).choices.at(0).reason == finish_reason::stop);
  CHECK(workers.idle());
}

TEST_CASE("a cancelled request frees its blocks without another step") {
  worker_group workers;
  std::vector<event> events;
  auto request = workers.submit({1, 2, 3}, 90, events);
  while (ids(events).size() < 4)
    REQUIRE(workers.coordinator.try_run_once());
  caf::anon_send(request, cancel_atom::value);
  workers.coordinator.run();
  CHECK(ids(events).size() < 20);
  CHECK(std::get<done_event>(events.back()).choices.at(0).reason == finish_reason::cancelled);
  CHECK(workers.idle());
}

TEST_CASE("a request that is cancelled before it begins ends like any other") {
  worker_group workers;
  std::vector<event> events;
  caf::anon_send(workers.submit({1, 2, 3}, 90, events), cancel_atom::value);
  workers.coordinator.run();
  auto* done = std::get_if<done_event>(&events.back());
  REQUIRE(done);
  REQUIRE(done->choices.size() == 1);
  CHECK(done->choices[0].reason == finish_reason::cancelled);
  CHECK(done->completion_tokens == 0);
  CHECK(workers.idle());
}

TEST_CASE("a killed request actor leaves no state behind") {
  worker_group workers;
  std::vector<event> events;
  auto request = workers.submit({1, 2, 3}, 90, events);
  while (ids(events).size() < 4)
    REQUIRE(workers.coordinator.try_run_once());
  caf::anon_send_exit(request, caf::exit_reason::kill);
  workers.coordinator.run();
  CHECK(workers.idle());
}

TEST_CASE("a request that only itself holds reports an engine that dies before admission") {
  worker_group workers;
  std::vector<event> events;
  workers.submit({1, 2, 3}, 90, events);
  caf::anon_send_exit(workers.engine, caf::exit_reason::kill);
  workers.coordinator.run();
  REQUIRE(events.size() == 1);
  CHECK(std::get<error>(events[0]).message == "the engine has stopped");
}

TEST_CASE("a deadline ends a request that is paused, with what it has") {
  worker_group workers;
  std::vector<event> events;
  auto request = workers.submit({1, 2, 3}, 90, events);
  caf::anon_send(request, pause_atom::value, true);
  workers.coordinator.run();
  CHECK_FALSE(std::holds_alternative<error>(events.empty() ? event{} : events.back()));
  workers.coordinator.advance_time(std::chrono::seconds(61));
  workers.coordinator.run();
  REQUIRE_FALSE(events.empty());
  REQUIRE(std::holds_alternative<done_event>(events.back()));
  CHECK(std::get<done_event>(events.back()).choices.at(0).reason == finish_reason::timeout);
  CHECK(workers.idle());
}

TEST_CASE("a full queue refuses the next request, the others finish") {
  worker_group workers;
  std::vector<std::vector<event>> events(12);
  for (std::size_t i = 0; i < events.size(); ++i)
    workers.submit({static_cast<token_id>(i)}, 3, events[i]);
  workers.coordinator.run();
  int refused = 0, done = 0;
  for (auto& e : events)
    if (auto* why = std::get_if<error>(&e.back()))
      refused += why->code == errc::overloaded;
    else
      ++done;
  CHECK(refused + done == 12);
  CHECK(done >= 8);
  CHECK(workers.idle());
}

TEST_CASE("an engine without a model gives the reason") {
  worker_group workers({errc::unavailable, "the model is still loading", {}});
  std::vector<event> events;
  workers.submit({1}, 1, events);
  workers.coordinator.run();
  REQUIRE(events.size() == 1);
  CHECK(std::get<error>(events[0]).message == "the model is still loading");
}

TEST_CASE("a sink that throws ends its request, and is offered the error") {
  worker_group workers;
  std::vector<event> events;
  generation g;
  g.prompt = {1, 2, 3};
  g.sampling.max_tokens = 50;
  spawn_request(workers.system, workers.engine, std::make_shared<const generation>(g), client_line([&](event e) {
                  events.push_back(std::move(e));
                  if (events.size() == 3)
                    throw std::runtime_error("the client is not up to it");
                }));
  workers.coordinator.run();
  REQUIRE(events.size() == 4);
  const auto* why = std::get_if<error>(&events.back());
  REQUIRE(why);
  CHECK(why->code == errc::internal);
  CHECK(why->message == "the client is not up to it");
  CHECK(workers.idle());
}

TEST_CASE("the request paused longest is dropped when too many are paused") {
  std::vector<std::vector<event>> events(9); // outlives the requests
  worker_group workers;                      // of 4 places and a queue of 4
  for (std::size_t i = 0; i < events.size(); ++i) {
    caf::anon_send(workers.submit({static_cast<token_id>(i)}, 5, events[i]), pause_atom::value, true);
    workers.coordinator.run();
  }
  for (std::size_t i = 1; i < events.size(); ++i)
    CHECK(std::ranges::none_of(events[i], [](auto& e) { return std::holds_alternative<error>(e); }));
  REQUIRE(!events[0].empty());
  CHECK(std::get<error>(events[0].back()).code == errc::overloaded);
  CHECK(workers.ask<scheduler_counters>(workers.scheduler).paused == 8);
}

namespace {

/// An actor that collects a request's events.
client_actor spawn_client(caf::actor_system& system, std::vector<event>& events) {
  return system.spawn([&events]() -> client_actor::behavior_type {
    return {[&events](event_atom, std::uint64_t, const event_ptr& e) { events.push_back(*e); }};
  });
}

} // namespace

TEST_CASE("a request ends with the actor that submitted it") {
  worker_group workers;
  std::vector<event> events;
  auto client = spawn_client(workers.system, events);
  generation g;
  g.prompt = {1, 2, 3};
  g.sampling.max_tokens = 90;
  const auto what = std::make_shared<const generation>(g);
  SUBCASE("while it runs") {
    spawn_request(workers.system, workers.engine, what, client_line(client, 7));
    while (ids(events).size() < 4)
      REQUIRE(workers.coordinator.try_run_once());
    caf::anon_send_exit(client, caf::exit_reason::user_shutdown);
  }
  SUBCASE("between two worker groups") {
    spawn_request(workers.system, workers.engine, what, client_line(client, 7));
    while (ids(events).size() < 4)
      REQUIRE(workers.coordinator.try_run_once());
    workers.end();
    caf::anon_send_exit(client, caf::exit_reason::user_shutdown);
    workers.coordinator.run();
    workers.restart();
  }
  SUBCASE("if that has ended before") {
    caf::anon_send_exit(client, caf::exit_reason::user_shutdown);
    workers.coordinator.run();
    spawn_request(workers.system, workers.engine, what, client_line(client, 7));
  }
  workers.coordinator.run();
  CHECK(ids(events).size() < 20);
  CHECK(workers.idle());
}

TEST_CASE("an actor that has had its answer holds no storage of the request") {
  worker_group workers;
  std::vector<event> events;
  const auto client = spawn_client(workers.system, events);
  generation g;
  g.prompt = {1, 2, 3};
  g.sampling.max_tokens = 3;
  const auto weak_references = [&] { return caf::actor_cast<caf::strong_actor_ptr>(client)->weak_refs.load(); };
  const auto before = weak_references();
  spawn_request(workers.system, workers.engine, std::make_shared<const generation>(g), client_line(client, 7));
  workers.coordinator.run();
  CHECK(std::holds_alternative<done_event>(events.back()));
  CHECK(weak_references() == before);
}

TEST_CASE("an ended request leaves nothing with the actors that live on, nor with their clocks") {
  worker_group workers;
  for (const bool cancelled : {false, true}) {
    CAPTURE(cancelled);
    std::vector<event> events;
    auto request = workers.submit({1, 2, 3}, 5, events);
    const auto storage = caf::actor_cast<caf::weak_actor_ptr>(request);
    if (cancelled)
      caf::anon_send(request, cancel_atom::value);
    request = request_actor();
    workers.coordinator.run();
    workers.script->asked.clear();
    REQUIRE(std::holds_alternative<done_event>(events.back()));
    CHECK(storage->weak_refs == 1); // `storage` itself
    CHECK(storage->strong_refs == 0);
  }
}

TEST_CASE("a request that has moved to another worker group leaves nothing behind either") {
  worker_group workers;
  std::vector<event> events;
  auto request = workers.submit({1, 2, 3}, 20, events);
  const auto storage = caf::actor_cast<caf::weak_actor_ptr>(request);
  request = request_actor();
  while (ids(events).size() < 4)
    REQUIRE(workers.coordinator.try_run_once());
  workers.restart();
  REQUIRE(std::holds_alternative<done_event>(events.back()));
  CHECK(storage->weak_refs == 1);
}
