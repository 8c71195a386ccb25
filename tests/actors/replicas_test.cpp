// Requests and several replicas under CAF's deterministic coordinator: an engine that only routes, and worker groups
// that the test ends and starts.
#include "tests/actors/routed_groups.hpp"

#include <algorithm>
#include <deque>

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::int32_t pool_blocks = 20;

struct routed_replicas : routing_script {
  std::vector<int> chosen; // of each admission
  int reports = 0;
};

class routing_engine {
public:
  static constexpr const char* name = "engine";

  routing_engine(engine_actor::pointer self, std::shared_ptr<routed_replicas> to) : self_(self), to_(std::move(to)) {}

  engine_actor::behavior_type make_behavior() {
    return engine_that(
      [this](const admission_wanted& its) {
        if (its.query)
          route(its.request, *its.query);
        else
          self_->send(its.request, admit_atom::value, to_->ask());
      },
      [this](load_atom, const load_report_ptr& report) { ++to_->reports, to_->routes.take(*report); },
      [](const move_wanted&) {}, [](const deadline_set&) {}, [](deadlines_due) {},
      [](record_atom, const step_record_ptr&) {});
  }

private:
  void route(const request_actor& request, const route_query& query) {
    const auto to = to_->routes.choose(++number_, query);
    REQUIRE(to.has_value());
    to_->chosen.push_back(to->replica);
    self_->send(request, admit_atom::value, to_->admit(*to, number_));
  }

  engine_actor::pointer self_;
  std::shared_ptr<routed_replicas> to_;
  std::uint64_t number_ = 0;
};

struct routes_of_replicas {
  std::shared_ptr<routed_replicas> to = std::make_shared<routed_replicas>(); // made before those who use it
};

class replicas : public routes_of_replicas, public routed_groups {
public:
  explicit replicas(int count) : routed_groups(*to, count, 16, pool_blocks) {
    engine = spawn_state<engine_actor, routing_engine>(system, to);
    for (int i = 0; i < count; ++i)
      start(i);
  }

  void start(int number) {
    routed_groups::start(number, spawn_kv_block_manager(system, pool_blocks, true));
    open(number);
  }
};

generation counting_from(token_id last, int max_tokens, int n = 1) { return long_prompt(1, last, max_tokens, n); }

} // namespace

TEST_CASE("requests are spread over replicas, and these report how busy they are") {
  replicas two(2);
  std::deque<std::vector<event>> events(6);
  for (auto& e : events)
    two.submit(counting_from(1, 20), e);
  two.coordinator.run();
  for (auto& e : events) {
    CHECK(ids(e) == counting(2, 20));
    CHECK(std::holds_alternative<done_event>(e.back()));
  }
  CHECK(std::ranges::count(two.to->chosen, 0) == 3);
  CHECK(std::ranges::count(two.to->chosen, 1) == 3);
  CHECK(two.to->reports > 1);
  CHECK(two.to->reports < 40); // there were at least as many steps
}

TEST_CASE("the room for waiting requests is that of all replicas") {
  replicas two(2);
  std::deque<std::vector<event>> events(30);
  for (auto& e : events)
    two.submit(counting_from(1, 3), e);
  two.coordinator.run();
  int done = 0, refused = 0;
  for (auto& e : events)
    if (const auto* why = std::get_if<error>(&e.back()))
      refused += why->code == errc::overloaded;
    else
      ++done;
  CHECK(done >= 24); // 4 that run and 8 that wait, twice
  CHECK(done + refused == 30);
}

TEST_CASE("whenever a replica dies, others go on with its requests: no client sees more than a pause") {
  for (const int dies : {0, 1})
    for (int events_before = 0; events_before < 60; events_before += 3) {
      CAPTURE(dies);
      CAPTURE(events_before);
      replicas two(2);
      std::deque<std::vector<event>> events(7);
      for (std::size_t i = 0; i < events.size(); ++i)
        two.submit(counting_from(static_cast<token_id>(i + 1), 18, i == 2 ? 3 : 1), events[i]);
      const auto heard = [&] {
        std::size_t all = 0;
        for (auto& e : events)
          all += e.size();
        return static_cast<int>(all);
      };
      while (heard() < events_before)
        REQUIRE(two.coordinator.try_run_once());
      two.lose(dies);
      if (events_before % 2 == 0)
        two.start(dies);
      two.coordinator.run();
      for (std::size_t i = 0; i < events.size(); ++i) {
        CAPTURE(i);
        for (std::uint32_t index = 0; index < (i == 2 ? 3u : 1u); ++index)
          CHECK(ids(events[i], index) == counting(static_cast<token_id>(i + 2), 18));
        REQUIRE(std::holds_alternative<done_event>(events[i].back()));
      }
    }
}

TEST_CASE("what a dead replica still says of its load is not taken for its successor's") {
  replicas two(2);
  std::vector<event> events;
  two.submit(counting_from(1, 20), events);
  while (ids(events).size() < 4)
    REQUIRE(two.coordinator.try_run_once());
  load_report late;
  late.replica = 0;
  late.life = 1;
  late.prompts = shape_of(0, 1'000'000, 1);
  two.lose(0);
  two.start(0);
  two.to->routes.take(late);
  two.coordinator.run();
  CHECK(ids(events) == counting(2, 20));
  std::deque<std::vector<event>> more(2);
  for (auto& e : more)
    two.submit(counting_from(1, 2), e);
  two.coordinator.run();
  CHECK(std::ranges::count(two.to->chosen, 0) >= 1);
}
