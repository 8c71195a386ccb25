// The protocol with CAF's deterministic coordinator: real scheduler, block manager, sampler and requests around an executor
// that computes nothing. Every test runs to quiescence; nothing sleeps.
#include "actors/kv_block_manager.hpp"
#include "actors/request.hpp"
#include "actors/sampler.hpp"
#include "actors/scheduler.hpp"
#include "actors/spawn.hpp"
#include "runtime/loader.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>
#include <doctest/doctest.h>

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
      [this](const step_result_ptr& result) {
        for (auto& d : result->drawn)
          slots_[d.slot] = d.token.id;
        known_of_ = result->step;
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
      message->values = {logits, logits->data()};
      message->vocab = vocab;
      self_->send(sampler_, step_logits_ptr(message), executor_actor(self_));
    }
  }

  executor_actor::pointer self_;
  sampler_actor sampler_;
  std::vector<step_plan_ptr> plans_;
  std::map<std::int32_t, token_id> slots_;
  std::uint64_t known_of_ = 0;
};

/// Shows requests the way to a scheduler, and nothing else.
class doorman {
public:
  static constexpr const char* name = "engine";

  doorman(engine_actor::pointer, welcome_ptr welcome) : welcome_(std::move(welcome)) {}

  engine_actor::behavior_type make_behavior() {
    return {
      [](submit_atom, std::uint64_t, const generation_ptr&, const client_actor&) { return request_actor{}; },
      [this](admit_atom, const request_actor&) { return welcome_; },
      [](loaded_atom, const loaded_model_ptr&) {},
      [](loaded_atom, const error&) {},
      [](stats_atom) { return engine_stats{}; },
    };
  }

private:
  welcome_ptr welcome_;
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

  explicit company(error refuse = {}) {
    auto model = std::make_shared<loaded_model>();
    model->info.vocab_size = vocab;
    model->info.max_context = 100;
    model->request_timeout = std::chrono::seconds(60);
    blocks = spawn_kv_block_manager(system, 20, true);
    sampler = spawn_sampler(system, {31});
    executor = spawn_state<executor_actor, counting_executor>(system, sampler);
    scheduler = spawn_scheduler(system, {16, 4, 4}, blocks, executor, sampler);
    caf::anon_send(sampler, attach_atom::value, scheduler);
    welcome w{model, scheduler, {}};
    if (!refuse.message.empty())
      w = {nullptr, {}, refuse};
    engine = spawn_state<engine_actor, doorman>(system, std::make_shared<const welcome>(w));
    coordinator.run();
  }

  ~company() {
    for (auto a : {caf::actor_cast<caf::actor>(blocks), caf::actor_cast<caf::actor>(sampler),
                   caf::actor_cast<caf::actor>(executor), caf::actor_cast<caf::actor>(scheduler),
                   caf::actor_cast<caf::actor>(engine)})
      caf::anon_send_exit(a, caf::exit_reason::kill);
    coordinator.run();
  }

  request_actor submit(std::uint64_t id, std::vector<token_id> prompt, int max_tokens, std::vector<event>& events) {
    generation g;
    g.prompt = std::move(prompt);
    g.sampling.temperature = 0;
    g.sampling.max_tokens = max_tokens;
    return spawn_request(system, engine, id, std::make_shared<const generation>(g),
                         std::make_shared<const event_sink>([&events](event e) { events.push_back(std::move(e)); }));
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

std::vector<token_id> ids(const std::vector<event>& events) {
  std::vector<token_id> all;
  for (auto& e : events)
    if (auto* t = std::get_if<token_event>(&e))
      all.insert(all.end(), t->token_ids.begin(), t->token_ids.end());
  return all;
}

} // namespace

TEST_CASE("a request's tokens reach its client in order, then one done event, and nothing stays behind") {
  company c;
  std::vector<event> a, b;
  c.submit(1, {1, 2, 3}, 5, a);
  c.submit(2, {10}, 3, b);
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
  c.submit(1, {28}, 50, events);
  c.coordinator.run();
  CHECK(ids(events) == std::vector<token_id>{29, 30, 31});
  CHECK(std::get<done_event>(events.back()).choices.at(0).reason == finish_reason::stop);
  CHECK(c.idle());
}

TEST_CASE("a cancelled request frees its blocks without another step") {
  company c;
  std::vector<event> events;
  auto request = c.submit(1, {1, 2, 3}, 90, events);
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
  caf::anon_send(c.submit(1, {1, 2, 3}, 90, events), cancel_atom::value);
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
  auto request = c.submit(1, {1, 2, 3}, 90, events);
  while (ids(events).size() < 4)
    REQUIRE(c.coordinator.try_run_once());
  caf::anon_send_exit(request, caf::exit_reason::kill);
  c.coordinator.run();
  CHECK(c.idle());
}

TEST_CASE("when the scheduler dies, its requests say so to their clients") {
  company c;
  std::vector<event> events;
  c.submit(1, {1, 2, 3}, 90, events);
  while (ids(events).size() < 4)
    REQUIRE(c.coordinator.try_run_once());
  caf::anon_send_exit(c.scheduler, caf::exit_reason::kill);
  c.coordinator.run();
  REQUIRE(std::holds_alternative<error>(events.back()));
  CHECK(std::get<error>(events.back()).code == errc::unavailable);
}

TEST_CASE("a deadline ends a request that is still waiting") {
  company c;
  std::vector<event> events;
  auto request = c.submit(1, {1, 2, 3}, 90, events);
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
    c.submit(i + 1, {static_cast<token_id>(i)}, 3, events[i]);
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
  c.submit(1, {1}, 1, events);
  c.coordinator.run();
  REQUIRE(events.size() == 1);
  CHECK(std::get<error>(events[0]).message == "the model is still loading");
}
