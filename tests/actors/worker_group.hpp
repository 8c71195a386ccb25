// Fixture for protocol tests with CAF's deterministic coordinator: real scheduler, block manager, sampler and requests
// around an executor that computes nothing. Every test runs to quiescence; nothing sleeps.
#pragma once

#include "actors/kv_block_manager.hpp"
#include "actors/messages/admission.hpp"
#include "actors/messages/arrivals.hpp"
#include "actors/messages/endings.hpp"
#include "actors/messages/introductions.hpp"
#include "actors/messages/judging.hpp"
#include "actors/messages/loading.hpp"
#include "actors/messages/reminders.hpp"
#include "actors/messages/roles.hpp"
#include "actors/messages/sampling.hpp"
#include "actors/request.hpp"
#include "actors/sampler.hpp"
#include "actors/scheduler.hpp"
#include "actors/spawn.hpp"
#include "runtime/engine/deadlines.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/execution/device.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::testing {

inline constexpr std::size_t vocab = 32;

/// What becomes of blocks on their way to another replica: whether they arrive.
using transport = std::function<bool(block_arrival&)>;

/// Predicts t + 1 after token t, provided that placeholders are filled in the right order. Sends the images of blocks.
class counting_executor {
public:
  static constexpr const char* name = "executor";

  counting_executor(executor_actor::pointer self, sampler_actor sampler, transport way = {})
    : self_(self), sampler_(std::move(sampler)), way_(std::move(way)) {}

  executor_actor::behavior_type make_behavior() {
    return {
      [](work_atom, const stage_work_ptr&) {},
      [this](plan_atom, const step_plan_ptr& plan) { plans_.push_back(plan), run(); },
      [this](tokens_atom, const step_tokens_ptr& tokens) {
        for (auto& d : tokens->sampled->sampled)
          slots_[d.slot] = d.token.id;
        known_up_to_ = tokens->step;
        run();
      },
      [this](const scheduler_known& own) { scheduler_ = caf::actor_cast<caf::weak_actor_ptr>(own.scheduler); },
      [this](const replica_known& other) {
        receiver_ = caf::actor_cast<caf::weak_actor_ptr>(other.blocks);
        its_scheduler_ = caf::actor_cast<caf::weak_actor_ptr>(other.scheduler);
      },
    };
  }

private:
  void run() {
    while (!plans_.empty() && plans_.front()->after_tokens_of <= known_up_to_) {
      auto plan = plans_.front();
      plans_.erase(plans_.begin());
      send_images(*plan);
      if (plan->tokens.empty()) // moves alone
        continue;
      auto logits = std::make_shared<std::vector<float>>(plan->logit_rows.size() * vocab);
      for (std::size_t i = 0; i < plan->logit_rows.size(); ++i) {
        auto t = plan->tokens[static_cast<std::size_t>(plan->logit_rows[i])];
        t = t < 0 ? slots_.at(slot_of(t)) : t;
        (*logits)[i * vocab + static_cast<std::size_t>(t + 1) % vocab] = 1;
      }
      auto message = std::make_shared<step_logits>();
      message->plan = plan;
      message->output = {{logits, logits->data()}, vocab, nullptr};
      self_->send(sampler_, logits_atom::value, step_logits_ptr(message), executor_actor(self_));
    }
  }

  void send_images(const step_plan& plan) {
    const auto own = caf::actor_cast<caf::strong_actor_ptr>(scheduler_);
    const auto receiver = caf::actor_cast<caf::strong_actor_ptr>(receiver_);
    const auto scheduler = caf::actor_cast<caf::strong_actor_ptr>(its_scheduler_);
    for (const auto& move : plan.moves) {
      if (move.what != block_move::kind::save || !move.destination || !own || !receiver || !scheduler)
        continue;
      const auto& to = *move.destination;
      block_arrival arrival{to.tokens, to.salt, move.image->place, {move.image}, to.request};
      if (move.image->state) {
        ++arrival.first;
        arrival.states.swap(arrival.images);
      }
      if (!way_ || way_(arrival))
        self_->send(caf::actor_cast<kv_receiver_actor>(receiver),
                    blocks_received{std::make_shared<const block_arrival>(std::move(arrival)),
                                    caf::actor_cast<scheduler_actor>(scheduler),
                                    caf::actor_cast<scheduler_actor>(own)});
    }
  }

  executor_actor::pointer self_;
  sampler_actor sampler_;
  transport way_;
  caf::weak_actor_ptr scheduler_, receiver_, its_scheduler_;
  std::vector<step_plan_ptr> plans_;
  std::map<std::int32_t, token_id> slots_;
  std::uint64_t known_up_to_ = 0;
};

/// The engine's reply to admit, and the requests that asked for it.
struct admission_script {
  admit_reply reply;
  std::vector<request_actor> asked;
  std::vector<step_record_ptr> records = {}; // that the scheduler has sent
  std::uint64_t last_number = 0;
  bool keeps_deadlines = true;

  admit_reply_ptr next() {
    auto r = reply;
    r.number = r.arrival = ++last_number;
    return std::make_shared<const admit_reply>(r);
  }
};

/// `own`: what an engine does with requests and reports. It does nothing else.
template <class... Handlers>
engine_actor::behavior_type engine_that(Handlers... own) {
  return {
    std::move(own)...,
    [](submit_atom, std::uint64_t, const generation_ptr&, const client_actor&) { return request_actor{}; },
    [](const model_loaded&) {},
    [](const load_failed&) {},
    [](judge_ready) {},
    [](const judge_failed&) {},
    [](restart_due) {},
    [](const trial_ended&) {},
    [](answer_valued) {},
    [](watch_atom, const step_watcher_actor&) {},
    [](unwatch_atom, const step_watcher_actor&) {},
    [](look_atom) { return engine_snapshot_ptr(); },
    [](news_atom, std::string&) {},
    [](stats_atom) { return engine_stats{}; },
  };
}

/// Admits requests as its script says, keeps their deadlines, and does nothing else.
class scripted_engine {
public:
  static constexpr const char* name = "engine";

  scripted_engine(engine_actor::pointer self, std::shared_ptr<admission_script> d)
    : self_(self), script_(std::move(d)) {
    self_->set_down_handler([this](caf::down_msg& down) { deadlines_.erase(down.source); });
  }

  engine_actor::behavior_type make_behavior() {
    return engine_that(
      [this](const admission_wanted& its) {
        script_->asked.push_back(its.request);
        self_->send(its.request, admit_atom::value, script_->next());
      },
      [](const move_wanted&) {}, [](load_atom, const load_report_ptr&) {},
      [this](const deadline_set& wanted) {
        if (!script_->keeps_deadlines)
          return;
        const auto& [ms, request] = wanted;
        self_->monitor(request);
        deadlines_.set(request.address(), self_->clock().now() + std::chrono::milliseconds(ms));
        self_->delayed_send(self_, std::chrono::milliseconds(ms), deadlines_due{});
      },
      [this](deadlines_due) { expire(); },
      [this](record_atom, const step_record_ptr& record) { script_->records.push_back(record); });
  }

private:
  void expire() {
    while (const auto late = deadlines_.expired(self_->clock().now())) {
      if (const auto alive = caf::actor_cast<caf::strong_actor_ptr>(*late))
        self_->send(caf::actor_cast<request_actor>(alive), deadline_passed{});
      deadlines_.erase(*late);
    }
  }

  engine_actor::pointer self_;
  std::shared_ptr<admission_script> script_;
  deadlines<caf::actor_addr> deadlines_;
};

struct testing_config : caf::actor_system_config {
  testing_config() { set("scheduler.policy", caf::atom("testing")); }
};

struct worker_group {
  testing_config config;
  caf::actor_system system{config};
  caf::scheduler::test_coordinator& coordinator = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  kv_block_manager_actor blocks;
  sampler_actor sampler;
  executor_actor executor;
  scheduler_actor scheduler;
  engine_actor engine;
  std::shared_ptr<admission_script> script = std::make_shared<admission_script>();
  std::shared_ptr<loaded_model> model = std::make_shared<loaded_model>();
  scheduler_limits limits{16, 4, 4};

  explicit worker_group(error refuse = {}) {
    model->info.vocab_size = vocab;
    model->info.max_context = 100;
    model->request_timeout = std::chrono::seconds(60);
    model->info.defaults.stops = {31};
    model->replicas.push_back({.stages = {open_device({.device = "cpu", .threads = 1}, nullptr)}});
    model->capabilities = model->replicas.front().last().capabilities();
    script->reply.model = refuse.message.empty() ? model : nullptr;
    script->reply.why = refuse;
    engine = spawn_state<engine_actor, scripted_engine>(system, script);
    start();
  }

  ~worker_group() {
    end();
    caf::anon_send_exit(engine, caf::exit_reason::kill);
    coordinator.run();
  }

  void start() {
    blocks = spawn_kv_block_manager(system, 20, true);
    sampler = spawn_sampler(system, replica_of(model));
    executor = spawn_state<executor_actor, counting_executor>(system, sampler);
    scheduler = spawn_scheduler(system, limits, {blocks, executor, sampler}, {}, {},
                                {caf::actor_cast<caf::weak_actor_ptr>(engine)});
    caf::anon_send(sampler, scheduler_known{scheduler});
    script->reply.scheduler = scheduler;
    coordinator.run();
  }

  /// Ends all but the engine and the requests; these wait.
  void end() {
    script->reply.scheduler = scheduler_actor();
    for (auto a : {caf::actor_cast<caf::actor>(blocks), caf::actor_cast<caf::actor>(sampler),
                   caf::actor_cast<caf::actor>(executor), caf::actor_cast<caf::actor>(scheduler)})
      caf::anon_send_exit(a, caf::exit_reason::kill);
    coordinator.run();
  }

  /// Replaces the worker group and admits the requests that wait for one.
  void restart() {
    script->asked.clear();
    end();
    start();
    for (auto& request : std::exchange(script->asked, {}))
      caf::anon_send(request, admit_atom::value, script->next());
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
    auto pending = self->request(who, std::chrono::seconds(60), stats_atom::value);
    coordinator.run();
    pending.receive([&](const Counters& c) { result = c; }, [](caf::error&) { FAIL("no answer"); });
    return result;
  }

  bool idle() {
    auto s = ask<scheduler_counters>(scheduler);
    return s.running + s.waiting + s.paused == 0 && ask<block_counters>(blocks).in_use == 0;
  }
};

inline std::vector<token_id> ids(const std::vector<event>& events, std::uint32_t index = 0) {
  std::vector<token_id> all;
  for (auto& e : events)
    if (auto* t = std::get_if<token_event>(&e); t && t->index == index)
      all.insert(all.end(), t->token_ids.begin(), t->token_ids.end());
  return all;
}

} // namespace troupe::testing
