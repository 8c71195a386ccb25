// The protocol with CAF's deterministic coordinator: real scheduler, block manager, sampler and requests around an executor
// that computes nothing. Every test runs to quiescence; nothing sleeps.
#include "actors/kv_block_manager.hpp"
#include "actors/request.hpp"
#include "actors/sampler.hpp"
#include "actors/scheduler.hpp"
#include "actors/spawn.hpp"
#include "runtime/engine/loader.hpp"
#include "tests/actors/failing_memory.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>
#include <doctest/doctest.h>

#include <numeric>

using namespace troupe;

namespace {

constexpr std::size_t vocab = 32;

/// Says that after token t comes t + 1, as long as the plan's placeholders come in the right order.
class counting_executor {
public:
  static constexpr const char* name = "executor";

  counting_executor(executor_actor::pointer self, sampler_actor sampler) : self_(self), sampler_(std::move(sampler)) {}

  executor_actor::behavior_type make_behavior() {
    return {
      [this](const step_plan_ptr& plan) { plans_.push_back(plan), run(); },
      [this](const step_tokens_ptr& tokens) {
        for (auto& d : tokens->sampled->sampled)
          slots_[d.slot] = d.token.id;
        known_of_ = tokens->step;
        run();
      },
    };
  }

private:
  void run() {
    while (!plans_.empty() && plans_.front()->after_tokens_of <= known_of_) {
      auto plan = plans_.front();
      plans_.erase(plans_.begin());
      auto logits = std::make_shared<std::vector<float>>(plan->logit_rows.size() * vocab);
      for (std::size_t i = 0; i < plan->logit_rows.size(); ++i) {
        auto t = plan->tokens[static_cast<std::size_t>(plan->logit_rows[i])];
        t = t < 0 ? slots_.at(slot_of(t)) : t;
        (*logits)[i * vocab + static_cast<std::size_t>(t + 1) % vocab] = 1;
      }
      auto message = std::make_shared<step_logits>();
      message->plan = plan;
      message->output = {{logits, logits->data()}, vocab, nullptr};
      self_->send(sampler_, step_logits_ptr(message), executor_actor(self_));
    }
  }

  executor_actor::pointer self_;
  sampler_actor sampler_;
  std::vector<step_plan_ptr> plans_;
  std::map<std::int32_t, token_id> slots_;
  std::uint64_t known_of_ = 0;
};

/// What the doorman tells those who come, and who came.
struct door {
  welcome open;
  std::vector<request_actor> came;
  std::uint64_t last_number = 0;

  welcome_ptr next() {
    auto w = open;
    w.number = w.arrival = ++last_number;
    return std::make_shared<const welcome>(w);
  }
};

/// Shows requests the way to a scheduler, and nothing else.
class doorman {
public:
  static constexpr const char* name = "engine";

  doorman(engine_actor::pointer self, std::shared_ptr<door> d) : self_(self), door_(std::move(d)) {}

  engine_actor::behavior_type make_behavior() {
    return {
      [](submit_atom, std::uint64_t, const generation_ptr&, const client_actor&) { return request_actor{}; },
      [this](admit_atom, const request_actor& request) {
        door_->came.push_back(request);
        self_->send(request, door_->next());
      },
      [](loaded_atom, const loaded_model_ptr&) {},
      [](loaded_atom, const error&) {},
      [](stats_atom) { return engine_stats{}; },
    };
  }

private:
  engine_actor::pointer self_;
  std::shared_ptr<door> door_;
};

struct testing_config : caf::actor_system_config {
  testing_config() { set("scheduler.policy", caf::atom("testing")); }
};

struct company {
  testing_config config;
  caf::actor_system system{config};
  caf::scheduler::test_coordinator& coordinator = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  kv_block_manager_actor blocks;
  sampler_actor sampler;
  executor_actor executor;
  scheduler_actor scheduler;
  engine_actor engine;
  std::shared_ptr<door> way_in = std::make_shared<door>();
  std::shared_ptr<loaded_model> model = std::make_shared<loaded_model>();

  explicit company(error refuse = {}) {
    model->info.vocab_size = vocab;
    model->info.max_context = 100;
    model->request_timeout = std::chrono::seconds(60);
    model->info.defaults.stops = {31};
    model->device = open_device({.device = "cpu", .threads = 1}, nullptr);
    way_in->open.model = refuse.message.empty() ? model : nullptr;
    way_in->open.why = refuse;
    engine = spawn_state<engine_actor, doorman>(system, way_in);
    start();
  }

  ~company() {
    end();
    caf::anon_send_exit(engine, caf::exit_reason::kill);
    coordinator.run();
  }

  void start() {
    blocks = spawn_kv_block_manager(system, 20, true);
    sampler = spawn_sampler(system, model);
    executor = spawn_state<executor_actor, counting_executor>(system, sampler);
    scheduler = spawn_scheduler(system, {16, 4, 4}, blocks, executor, sampler);
    caf::anon_send(sampler, attach_atom::value, scheduler);
    way_in->open.scheduler = scheduler;
    coordinator.run();
  }

  /// All but the engine and the requests, who are told to wait.
  void end() {
    way_in->open.scheduler = scheduler_actor();
    for (auto a : {caf::actor_cast<caf::actor>(blocks), caf::actor_cast<caf::actor>(sampler),
                   caf::actor_cast<caf::actor>(executor), caf::actor_cast<caf::actor>(scheduler)})
      caf::anon_send_exit(a, caf::exit_reason::kill);
    coordinator.run();
  }

  /// Another company, and everyone who waits for one hears of it.
  void start_anew() {
    way_in->came.clear();
    end();
    start();
    for (auto& request : std::exchange(way_in->came, {}))
      caf::anon_send(request, way_in->next());
    coordinator.run();
  }

  request_actor submit(std::vector<token_id> prompt, int max_tokens, std::vector<event>& events, int n = 1) {
    generation g;
    g.prompt = std::move(prompt);
    g.sampling.temperature = 0;
    g.sampling.max_tokens = max_tokens;
    g.sampling.n = n;
    return spawn_request(system, engine, std::make_shared<const generation>(g),
                         client_line([&events](event e) { events.push_back(std::move(e)); }));
  }

  template <class Counters, class Handle>
  Counters ask(const Handle& who) {
    caf::scoped_actor self{system};
    Counters result;
    auto pending = self->request(who, caf::infinite, stats_atom::value);
    coordinator.run();
    pending.receive([&](const Counters& c) { result = c; }, [](caf::error&) { FAIL("no answer"); });
    return result;
  }

  bool idle() {
    auto s = ask<scheduler_counters>(scheduler);
    return s.running + s.waiting + s.paused == 0 && ask<block_counters>(blocks).in_use == 0;
  }
};

std::vector<token_id> ids(const std::vector<event>& events, std::uint32_t index = 0) {
  std::vector<token_id> all;
  for (auto& e : events)
    if (auto* t = std::get_if<token_event>(&e); t && t->index == index)
      all.insert(all.end(), t->token_ids.begin(), t->token_ids.end());
  return all;
}

} // namespace

TEST_CASE("a request's tokens reach its client in order, then one done event, and nothing stays behind") {
  company c;
  std::vector<event> a, b;
  c.submit({1, 2, 3}, 5, a);
  c.submit({10}, 3, b);
  c.coordinator.run();
  CHECK(ids(a) == std::vector<token_id>{4, 5, 6, 7, 8});
  CHECK(ids(b) == std::vector<token_id>{11, 12, 13});
  REQUIRE(std::holds_alternative<done_event>(a.back()));
  CHECK(std::get<done_event>(a.back()).completion_tokens == 5);
  CHECK(c.idle());
}

TEST_CASE("an end-of-sequence token ends a request with reason stop") {
  company c;
  std::vector<event> events;
  c.submit({28}, 50, events);
  c.coordinator.run();
  CHECK(ids(events) == std::vector<token_id>{29, 30, 31});
  CHECK(std::get<done_event>(events.back()).choices.at(0).reason == finish_reason::stop);
  CHECK(c.idle());
}

TEST_CASE("a cancelled request frees its blocks without another step") {
  company c;
  std::vector<event> events;
  auto request = c.submit({1, 2, 3}, 90, events);
  while (ids(events).size() < 4)
    REQUIRE(c.coordinator.try_run_once());
  caf::anon_send(request, cancel_atom::value);
  c.coordinator.run();
  CHECK(ids(events).size() < 20);
  CHECK(std::get<done_event>(events.back()).choices.at(0).reason == finish_reason::cancelled);
  CHECK(c.idle());
}

TEST_CASE("a request that is cancelled before it begins ends like any other") {
  company c;
  std::vector<event> events;
  caf::anon_send(c.submit({1, 2, 3}, 90, events), cancel_atom::value);
  c.coordinator.run();
  auto* done = std::get_if<done_event>(&events.back());
  REQUIRE(done);
  REQUIRE(done->choices.size() == 1);
  CHECK(done->choices[0].reason == finish_reason::cancelled);
  CHECK(done->completion_tokens == 0);
  CHECK(c.idle());
}

TEST_CASE("a request whose actor is killed is let go by everyone") {
  company c;
  std::vector<event> events;
  auto request = c.submit({1, 2, 3}, 90, events);
  while (ids(events).size() < 4)
    REQUIRE(c.coordinator.try_run_once());
  caf::anon_send_exit(request, caf::exit_reason::kill);
  c.coordinator.run();
  CHECK(c.idle());
}

TEST_CASE("when the scheduler dies, requests go on with the next one from where they were") {
  for (std::size_t tokens = 0; tokens < 20; ++tokens) {
    CAPTURE(tokens);
    company c;
    std::vector<event> one, three, waiting;
    c.submit({1}, 20, one);
    c.submit({5}, 18, three, 3);
    c.submit({10}, 3, waiting); // there is no place for a fifth sequence yet
    while (ids(one).size() < tokens)
      REQUIRE(c.coordinator.try_run_once());
    c.start_anew();
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
    CHECK(c.idle());
  }
}

TEST_CASE("what an old company still sends is not taken") {
  company c;
  std::vector<event> events;
  const auto request = c.submit({1}, 20, events);
  while (ids(events).size() < 4)
    REQUIRE(c.coordinator.try_run_once());
  const auto old = c.way_in->last_number;
  const auto stale = [&] {
    caf::anon_send(request, sequence_id{old, 0}, sampled_token{.id = 30});
    caf::anon_send(request, old, error{errc::internal, "of old", {}});
    caf::anon_send(request, started_atom::value, old, 17);
  };
  c.end();
  stale();
  c.coordinator.run();
  c.start();
  caf::anon_send(request, c.way_in->next());
  stale();
  c.coordinator.run();
  std::vector<token_id> expected(20);
  std::iota(expected.begin(), expected.end(), 2);
  CHECK(ids(events) == expected);
  REQUIRE(std::holds_alternative<done_event>(events.back()));
  CHECK(std::get<done_event>(events.back()).cached_tokens == 0);
  CHECK(c.idle());
}

TEST_CASE("a paused request is paused in the next company, too, and keeps its deadline") {
  company c;
  std::vector<event> events;
  const auto request = c.submit({1}, 20, events);
  while (ids(events).size() < 4)
    REQUIRE(c.coordinator.try_run_once());
  caf::anon_send(request, pause_atom::value, true);
  c.coordinator.run();
  c.coordinator.advance_time(std::chrono::seconds(35));
  const auto before = ids(events).size();
  c.start_anew();
  CHECK(ids(events).size() <= before + 2); // what was planned when the pause came
  CHECK(c.ask<scheduler_counters>(c.scheduler).paused == 1);
  SUBCASE("resumed, it ends well") {
    caf::anon_send(request, pause_atom::value, false);
    c.coordinator.run();
    CHECK(ids(events).size() == 20);
    CHECK(std::holds_alternative<done_event>(events.back()));
  }
  SUBCASE("left alone, it ends when its time is over, counted from its submission") {
    for (int i = 0; i < 3; ++i)
      c.coordinator.advance_time(std::chrono::seconds(10)), c.coordinator.run();
    REQUIRE(std::holds_alternative<error>(events.back()));
    CHECK(std::get<error>(events.back()).code == errc::timeout);
  }
  CHECK(c.idle());
}

TEST_CASE("between two companies a request can be cancelled, refused and timed out") {
  company c;
  std::vector<event> running, fresh, bad, late;
  const auto request = c.submit({1}, 20, running);
  while (ids(running).size() < 4)
    REQUIRE(c.coordinator.try_run_once());
  c.end();
  caf::anon_send(request, cancel_atom::value);
  caf::anon_send(c.submit({1}, 20, fresh), cancel_atom::value);
  c.submit({}, 20, bad);
  c.submit({1}, 20, late);
  c.coordinator.run();
  for (auto* events : {&running, &fresh})
    CHECK(std::get<done_event>(events->back()).choices.at(0).reason == finish_reason::cancelled);
  CHECK(std::get<error>(bad.back()).param == "prompt");
  CHECK(late.empty());
  for (int i = 0; i < 7; ++i)
    c.coordinator.advance_time(std::chrono::seconds(10)), c.coordinator.run();
  CHECK(std::get<error>(late.back()).code == errc::timeout);
}

TEST_CASE("when there will be no other company, requests say why to their clients") {
  company c;
  std::vector<event> events;
  c.submit({1, 2, 3}, 90, events);
  while (ids(events).size() < 4)
    REQUIRE(c.coordinator.try_run_once());
  c.way_in->open.model = nullptr;
  c.way_in->open.why = {errc::device, "the device is lost", {}};
  SUBCASE("the engine knows") {
    caf::anon_send_exit(c.scheduler, caf::exit_reason::kill);
    c.coordinator.run();
    CHECK(std::get<error>(events.back()).message == "the device is lost");
  }
  SUBCASE("the engine has died itself") {
    caf::anon_send_exit(c.engine, caf::exit_reason::kill);
    c.coordinator.run();
    CHECK(std::get<error>(events.back()).message == "the engine has stopped");
  }
}

TEST_CASE("a request that nobody holds hears of an engine that dies before it has let it in") {
  company c;
  std::vector<event> events;
  c.submit({1, 2, 3}, 90, events);
  caf::anon_send_exit(c.engine, caf::exit_reason::kill);
  c.coordinator.run();
  REQUIRE(events.size() == 1);
  CHECK(std::get<error>(events[0]).message == "the engine has stopped");
}

TEST_CASE("a deadline ends a request that is still waiting") {
  company c;
  std::vector<event> events;
  auto request = c.submit({1, 2, 3}, 90, events);
  caf::anon_send(request, pause_atom::value, true);
  c.coordinator.run();
  CHECK_FALSE(std::holds_alternative<error>(events.empty() ? event{} : events.back()));
  c.coordinator.advance_time(std::chrono::seconds(61));
  c.coordinator.run();
  REQUIRE_FALSE(events.empty());
  CHECK(std::get<error>(events.back()).code == errc::timeout);
  CHECK(c.idle());
}

TEST_CASE("a full queue refuses the next request, the others finish") {
  company c;
  std::vector<std::vector<event>> events(12);
  for (std::size_t i = 0; i < events.size(); ++i)
    c.submit({static_cast<token_id>(i)}, 3, events[i]);
  c.coordinator.run();
  int refused = 0, done = 0;
  for (auto& e : events)
    if (auto* why = std::get_if<error>(&e.back()))
      refused += why->code == errc::overloaded;
    else
      ++done;
  CHECK(refused + done == 12);
  CHECK(done >= 8);
  CHECK(c.idle());
}

TEST_CASE("an engine without a model says why") {
  company c({errc::unavailable, "the model is still loading", {}});
  std::vector<event> events;
  c.submit({1}, 1, events);
  c.coordinator.run();
  REQUIRE(events.size() == 1);
  CHECK(std::get<error>(events[0]).message == "the model is still loading");
}

TEST_CASE("whichever allocation of a request's actor fails, its client hears an end and nothing stays behind") {
  company c;
  int errors = 0;
  for (int nth = 1;; ++nth) {
    CAPTURE(nth);
    test::failing_allocation failing(nth);
    std::vector<event> events;
    const auto request = c.submit({1, 2, 3}, 5, events, 2);
    const auto* actor = caf::actor_cast<caf::abstract_actor*>(request);
    while (c.coordinator.has_job()) {
      const bool its_turn = dynamic_cast<caf::abstract_actor*>(c.coordinator.jobs.front()) == actor;
      if (its_turn)
        failing.arm();
      c.coordinator.run_once();
      failing.disarm();
    }
    REQUIRE(!events.empty());
    CHECK(std::ranges::count_if(events, [](auto& e) { return !std::holds_alternative<token_event>(e); }) == 1);
    CHECK(c.idle());
    if (!failing.happened())
      break;
    if (const auto* why = std::get_if<error>(&events.back())) {
      ++errors;
      CHECK((why->code == errc::out_of_memory || why->code == errc::internal));
    }
  }
  CHECK(errors > 10);
}

TEST_CASE("whichever allocation fails while a request is spawned, its client hears of it or its line stays open") {
  company c;
  for (int nth = 1;; ++nth) {
    CAPTURE(nth);
    std::vector<event> events;
    client_line line([&](event e) { events.push_back(std::move(e)); });
    const auto what = std::make_shared<const generation>();
    test::failing_allocation failing(nth);
    failing.arm();
    try {
      spawn_request(c.system, c.engine, what, std::move(line));
    } catch (const std::bad_alloc&) {
      line.close(std::current_exception());
    }
    failing.disarm();
    c.coordinator.run();
    REQUIRE(events.size() == 1);
    CHECK(std::get<error>(events[0]).code == (failing.happened() ? errc::out_of_memory : errc::bad_request));
    if (!failing.happened())
      break;
  }
}

TEST_CASE("a sink that throws ends its request, and is offered the error") {
  company c;
  std::vector<event> events;
  generation g;
  g.prompt = {1, 2, 3};
  g.sampling.max_tokens = 50;
  spawn_request(c.system, c.engine, std::make_shared<const generation>(g), client_line([&](event e) {
                  events.push_back(std::move(e));
                  if (events.size() == 3)
                    throw std::runtime_error("the client is not up to it");
                }));
  c.coordinator.run();
  REQUIRE(events.size() == 4);
  const auto* why = std::get_if<error>(&events.back());
  REQUIRE(why);
  CHECK(why->code == errc::internal);
  CHECK(why->message == "the client is not up to it");
  CHECK(c.idle());
}

TEST_CASE("a request that was paused for longest hears that too many are") {
  std::vector<std::vector<event>> events(9); // outlives the requests
  company c;                                 // of 4 places and a queue of 4
  for (std::size_t i = 0; i < events.size(); ++i) {
    caf::anon_send(c.submit({static_cast<token_id>(i)}, 5, events[i]), pause_atom::value, true);
    c.coordinator.run();
  }
  for (std::size_t i = 1; i < events.size(); ++i)
    CHECK(std::ranges::none_of(events[i], [](auto& e) { return std::holds_alternative<error>(e); }));
  REQUIRE(!events[0].empty());
  CHECK(std::get<error>(events[0].back()).code == errc::overloaded);
  CHECK(c.ask<scheduler_counters>(c.scheduler).paused == 8);
}
