// Requests and several replicas under CAF's deterministic coordinator: an engine that only routes, and worker groups
// that the test ends and starts.
#include "actors/messages/admission.hpp"
#include "runtime/scheduling/routing/router.hpp"
#include "tests/actors/worker_group.hpp"

#include <algorithm>
#include <deque>
#include <numeric>

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::int32_t pool_blocks = 20;

struct routed_replicas {
  router routes;
  std::map<int, scheduler_actor> schedulers;
  std::vector<int> chosen; // of each admission
  int reports = 0;
  std::shared_ptr<loaded_model> model;
};

class routing_engine {
public:
  static constexpr const char* name = "engine";

  routing_engine(engine_actor::pointer self, std::shared_ptr<routed_replicas> to) : self_(self), to_(std::move(to)) {}

  engine_actor::behavior_type make_behavior() {
    return engine_that(
      [this](const admission_wanted& its) {
        if (its.query)
          return route(its.request, *its.query);
        self_->send(its.request, admit_atom::value,
                    std::make_shared<const admit_reply>(admit_reply{.model = to_->model, .asks = true}));
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
    self_->send(request, admit_atom::value,
                std::make_shared<const admit_reply>(admit_reply{.model = to_->model,
                                                                .scheduler = to_->schedulers.at(to->replica),
                                                                .replica = to->replica,
                                                                .expected_cached = to->cached_tokens,
                                                                .number = number_,
                                                                .arrival = number_}));
  }

  engine_actor::pointer self_;
  std::shared_ptr<routed_replicas> to_;
  std::uint64_t number_ = 0;
};

class replicas {
public:
  explicit replicas(int count) {
    auto model = std::make_shared<loaded_model>();
    model->info.vocab_size = vocab;
    model->info.max_context = 100;
    model->request_timeout = std::chrono::seconds(60);
    model->info.defaults.stops = {31};
    model->replicas.resize(static_cast<std::size_t>(count),
                           {.stages = {open_device({.device = "cpu", .threads = 1}, nullptr)}});
    model->capabilities = model->replicas.front().last().capabilities();
    to->model = model;
    engine_ = spawn_state<engine_actor, routing_engine>(system_, to);
    for (int i = 0; i < count; ++i)
      start(i);
  }

  ~replicas() {
    while (!groups_.empty())
      lose(groups_.begin()->first);
    caf::anon_send_exit(engine_, caf::exit_reason::kill);
    coordinator.run();
  }

  void start(int number) {
    auto& g = groups_[number];
    g.blocks = spawn_kv_block_manager(system_, pool_blocks, true);
    g.sampler = spawn_sampler(system_, replica_of(to->model));
    g.executor = spawn_state<executor_actor, counting_executor>(system_, g.sampler);
    g.scheduler = spawn_scheduler(system_, limits, {g.blocks, g.executor, g.sampler}, {}, {},
                                  {.engine = caf::actor_cast<caf::weak_actor_ptr>(engine_),
                                   .replica = number,
                                   .life = ++lives_,
                                   .blocks = pool_blocks});
    caf::anon_send(g.sampler, scheduler_known{g.scheduler});
    to->schedulers[number] = g.scheduler;
    to->routes.start(number, lives_,
                     {.blocks = pool_blocks,
                      .slots = limits.max_sequences,
                      .queue = limits.max_queue,
                      .step_rows = limits.step_tokens});
    coordinator.run();
  }

  /// Its actors end, and requests will hear of it.
  void lose(int number) {
    const auto g = std::move(groups_.at(number));
    groups_.erase(number);
    to->routes.stop(number);
    to->schedulers.erase(number);
    for (auto a : {caf::actor_cast<caf::actor>(g.blocks), caf::actor_cast<caf::actor>(g.sampler),
                   caf::actor_cast<caf::actor>(g.executor), caf::actor_cast<caf::actor>(g.scheduler)})
      caf::anon_send_exit(a, caf::exit_reason::kill);
  }

  request_actor submit(const generation& g, std::vector<event>& events) {
    return spawn_request(system_, engine_, std::make_shared<const generation>(g),
                         client_line([&events](event e) { events.push_back(std::move(e)); }));
  }

private:
  struct group {
    kv_block_manager_actor blocks;
    sampler_actor sampler;
    executor_actor executor;
    scheduler_actor scheduler;
  };

  testing_config config_;
  caf::actor_system system_{config_};

public:
  const scheduler_limits limits{.step_tokens = 16, .max_sequences = 4, .max_queue = 8};
  caf::scheduler::test_coordinator& coordinator = dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  std::shared_ptr<routed_replicas> to = std::make_shared<routed_replicas>();

private:
  engine_actor engine_;
  std::map<int, group> groups_;
  std::uint64_t lives_ = 0;
};

generation counting_from(token_id last, int max_tokens, int n = 1) {
  generation g;
  g.prompt = {last};
  g.sampling.temperature = 0;
  g.sampling.max_tokens = max_tokens;
  g.sampling.n = n;
  return g;
}

std::vector<token_id> counted(token_id first, int count) {
  std::vector<token_id> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

} // namespace

TEST_CASE("requests are spread over replicas, and these report how busy they are") {
  replicas two(2);
  std::deque<std::vector<event>> events(6);
  for (auto& e : events)
    two.submit(counting_from(1, 20), e);
  two.coordinator.run();
  for (auto& e : events) {
    CHECK(ids(e) == counted(2, 20));
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
          CHECK(ids(events[i], index) == counted(static_cast<token_id>(i + 2), 18));
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
  CHECK(ids(events) == counted(2, 20));
  std::deque<std::vector<event>> more(2);
  for (auto& e : more)
    two.submit(counting_from(1, 2), e);
  two.coordinator.run();
  CHECK(std::ranges::count(two.to->chosen, 0) >= 1);
}
