// Deadlines of requests, by virtual time: what is not wanted any more is not computed, and what there is, is told.
#include "tests/actors/worker_group.hpp"

#include <variant>

using namespace troupe;
using namespace troupe::testing;

namespace {

request_actor submit(worker_group& to, std::vector<event>& events, generation g) {
  g.sampling.temperature = 0;
  return spawn_request(to.system, to.engine, std::make_shared<const generation>(std::move(g)),
                       client_line([&events](event e) { events.push_back(std::move(e)); }));
}

/// Four requests, which have all slots for as long as they run.
void fill(worker_group& all, std::vector<std::vector<event>>& events) {
  events.resize(4);
  for (std::size_t i = 0; i < events.size(); ++i)
    all.submit({static_cast<token_id>(i)}, 60, events[i]);
  while (ids(events.back()).size() < 4)
    REQUIRE(all.coordinator.try_run_once());
}

} // namespace

TEST_CASE("a request whose time is over in the queue has no rows, though nobody but its scheduler has seen it") {
  worker_group workers;
  workers.script->keeps_deadlines = false;
  std::vector<std::vector<event>> running;
  std::vector<event> late;
  fill(workers, running);
  generation g;
  g.prompt = {1, 2, 3, 4, 5};
  g.sampling.max_tokens = 5;
  const char* field = "timeout";
  SUBCASE("its whole time") { g.timeout = std::chrono::milliseconds(10); }
  SUBCASE("the time of its first token") {
    g.ttft_timeout = std::chrono::milliseconds(10);
    field = "ttft_timeout";
  }
  submit(workers, late, g);
  for (int i = 0; i < 40; ++i) // it waits
    REQUIRE(workers.coordinator.try_run_once());
  workers.coordinator.advance_time(std::chrono::milliseconds(11));
  workers.coordinator.run();
  for (const auto& each : running)
    CHECK(ids(each).size() > 20);
  REQUIRE(late.size() == 1);
  REQUIRE(std::holds_alternative<error>(late.back()));
  CHECK(std::get<error>(late.back()).code == errc::timeout);
  CHECK(std::get<error>(late.back()).param == field);
  CHECK(workers.ask<scheduler_counters>(workers.scheduler).prefill_rows == 4);
  CHECK(workers.idle());
}

TEST_CASE("who has waited as long as any may is refused, and who came back from a death is not") {
  worker_group workers;
  workers.end();
  workers.limits.max_wait_ms = 10;
  workers.start();
  std::vector<std::vector<event>> running;
  std::vector<event> late;
  fill(workers, running);
  workers.submit({7}, 5, late);
  for (int i = 0; i < 40; ++i)
    REQUIRE(workers.coordinator.try_run_once());
  workers.coordinator.advance_time(std::chrono::milliseconds(11));
  workers.restart();
  SUBCASE("the newcomer") {
    std::vector<std::vector<event>> others;
    std::vector<event> newcomer;
    fill(workers, others);
    workers.submit({7}, 5, newcomer);
    for (int i = 0; i < 40; ++i)
      REQUIRE(workers.coordinator.try_run_once());
    workers.coordinator.advance_time(std::chrono::milliseconds(11));
    workers.coordinator.run();
    REQUIRE(newcomer.size() == 1);
    CHECK(std::get<error>(newcomer.back()).code == errc::overloaded);
    CHECK(std::get<error>(newcomer.back()).message.find("--max-wait") != std::string::npos);
  }
  workers.coordinator.run();
  CHECK(std::holds_alternative<done_event>(late.back()));
  CHECK(workers.idle());
}

TEST_CASE("a request whose time is over while it runs ends with what it has") {
  worker_group workers;
  std::vector<event> events;
  generation g;
  g.prompt = {1};
  g.sampling.max_tokens = 20;
  g.timeout = std::chrono::seconds(5);
  g.ttft_timeout = std::chrono::seconds(2);
  const auto request = submit(workers, events, g);
  while (ids(events).size() < 4)
    REQUIRE(workers.coordinator.try_run_once());
  caf::anon_send(request, pause_atom::value, true);
  workers.coordinator.run();
  workers.coordinator.advance_time(std::chrono::seconds(3)); // its first token came in time
  workers.coordinator.run();
  CHECK(std::holds_alternative<token_event>(events.back()));
  workers.coordinator.advance_time(std::chrono::seconds(3));
  workers.coordinator.run();
  REQUIRE(std::holds_alternative<done_event>(events.back()));
  const auto& done = std::get<done_event>(events.back());
  CHECK(done.choices.at(0).reason == finish_reason::timeout);
  CHECK(done.choices.at(0).tokens == ids(events).size());
  CHECK(done.spent[wait_cause::paused] == doctest::Approx(6000));
  CHECK(workers.idle());
}

TEST_CASE("a client ends its answer where it is, and what it has stays") {
  worker_group workers;
  std::vector<event> events;
  const auto request = workers.submit({1}, 60, events, 2);
  SUBCASE("in mid-answer") {
    while (ids(events).size() < 4)
      REQUIRE(workers.coordinator.try_run_once());
  }
  SUBCASE("before it has begun") {}
  const auto before = ids(events).size();
  caf::anon_send(request, finish_wanted{});
  workers.coordinator.run();
  REQUIRE(std::holds_alternative<done_event>(events.back()));
  for (const auto& choice : std::get<done_event>(events.back()).choices) {
    CHECK(choice.reason == finish_reason::stop);
    CHECK(choice.tokens == ids(events, choice.index).size());
    CHECK(choice.tokens < 20); // a whole one has 30
  }
  CHECK(ids(events).size() >= before);
  CHECK(workers.idle());
}
