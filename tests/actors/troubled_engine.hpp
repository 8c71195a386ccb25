// An engine whose actors fail as a test wants: a real worker group over a small model, on a device that fails or waits
// at chosen steps; work of all kinds for it, and what clients hear of that when nothing fails.
#pragma once

#include "actors/engine.hpp"
#include "actors/messages/admission.hpp"
#include "actors/messages/constraints.hpp"
#include "actors/messages/endings.hpp"
#include "actors/messages/roles.hpp"
#include "actors/messages/sampling.hpp"
#include "actors/request.hpp"
#include "runtime/engine/loading/replica_roles.hpp"
#include "tests/actors/faulty_device.hpp"
#include "tests/listener.hpp"
#include "tests/test_data.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::testing {

struct sharing_config : caf::actor_system_config {
  sharing_config() {
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", std::size_t(2));
  }
};

inline engine_options small() {
  engine_options o;
  o.model = test_data() + "/golden/llama-gqa";
  o.kv_cache_bytes = 1 << 20;
  o.max_context = 256;
  o.max_sequences = 4;
  o.step_tokens = 32;
  o.compute.threads = 1;
  return o;
}

/// Sequences, and blocks that they refer to.
inline std::uint64_t in_use(const replica_stats& s) {
  return s.scheduler.running + s.scheduler.waiting + s.scheduler.paused + s.blocks.in_use;
}

/// An engine whose device follows `script`.
class troubled_engine {
public:
  explicit troubled_engine(std::shared_ptr<faults> script = std::make_shared<faults>(),
                           engine_options options = small())
    : script(std::move(script)) {
    auto load = [script = this->script](const engine_options& o, const progress_sink&) -> loaded_model_ptr {
      auto model = std::make_shared<loaded_model>(*load_model(o, {}, {.strict_roles = true}));
      for (auto& each : model->replicas)
        for (auto& stage : each.stages)
          stage = std::make_shared<faulty_device>(stage, script);
      return model;
    };
    auto listen = [this](const load_status& s, const loaded_model_ptr&) {
      std::lock_guard lock(mutex_);
      status_ = s;
      lines_.push_back(s.line);
      changed_.notify_all();
    };
    runners_ = replica_count(options) * (options.stages + (options.techniques.contains("amateur") ? 1 : 0));
    engine = spawn_engine(system_, std::move(options), listen, load);
    wait_for(load_status::stage::ready);
  }

  ~troubled_engine() {
    stop();
    engine = engine_actor();
    system_.await_all_actors_done();
    CHECK(script->alive == 0);
    CHECK(script->most_alive <= runners_); // the KV caches of two groups at a time might not fit
  }

  load_status wait_for(load_status::stage stage) {
    return wait_until([=](const load_status& s) { return s.now == stage; });
  }

  load_status wait_until(const std::function<bool(const load_status&)>& seen) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::minutes(5), [&] { return seen(status_); }));
    return status_;
  }

  std::vector<std::string> lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }

  void stop() { caf::anon_send_exit(engine, caf::exit_reason::user_shutdown); }

  request_actor submit(const generation& g, listener& to) {
    return spawn_request(system_, engine, std::make_shared<const generation>(g), client_line(to.sink()));
  }

  heard run(const generation& g) {
    listener l;
    submit(g, l);
    REQUIRE(l.wait());
    return l.result();
  }

  /// Nothing while there is no worker group. No counter may ever go back.
  std::optional<engine_stats> stats() {
    caf::scoped_actor self{system_};
    std::optional<engine_stats> stats;
    self->request(engine, std::chrono::minutes(5), stats_atom::value)
      .receive([&](const engine_stats& s) { stats = s; }, [](const caf::error&) {});
    if (stats)
      for_each_statistic(stats->total, [this](const statistic_info& about, std::uint64_t value) {
        CAPTURE(about.name);
        if (auto& last = counted_[about.name]; about.what == statistic_info::kind::counter) {
          CHECK(value >= last);
          last = value;
        }
      });
    return stats;
  }

  /// Waits until nothing runs and no block is in use.
  std::optional<engine_stats> settled() {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
         std::chrono::steady_clock::now() < end; std::this_thread::yield())
      if (auto s = stats(); s && in_use(s->total) == 0)
        return s;
    return std::nullopt;
  }

  /// The scheduler, as the engine admits requests to it.
  scheduler_actor scheduler() {
    auto admitted = std::make_shared<std::promise<scheduler_actor>>();
    auto scout = system_.spawn([admitted](request_actor::pointer self) -> request_actor::behavior_type {
      return {
        [=](admit_atom, const admit_reply_ptr& reply) { admitted->set_value(reply->scheduler), self->quit(); },
        [](const chain_arrived&) {},
        [](started_atom, std::uint64_t, std::int32_t, caf::timespan) {},
        [](const token_sampled&) {},
        [](scores_atom, const prompt_scores_ptr&) {},
        [](embedding_atom, const prompt_embedding_ptr&) {},
        [](const constraint_compiled&) {},
        [](ended_atom, std::uint64_t, const hypotheses_ptr&) {},
        [](const guesses_verified&) {},
        [](failed_atom, std::uint64_t, const error&) {},
        [](pause_atom, bool) {},
        [](cancel_atom) {},
        [](const finish_wanted&) {},
        [](deadline_passed) {},
      };
    });
    caf::anon_send(engine, admission_wanted{scout});
    caf::scoped_actor self{system_};
    self->wait_for(scout);
    return admitted->get_future().get();
  }

  /// Kills the scheduler and waits until the engine has noticed. The next group starts when this one has ended.
  void lose_scheduler() {
    const auto before = stats();
    caf::anon_send_exit(scheduler(), caf::exit_reason::kill);
    for (auto now = stats(); now && before && now->total.restarts == before->total.restarts; now = stats())
      std::this_thread::yield();
  }

  std::shared_ptr<faults> script;
  engine_actor engine;

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  load_status status_;
  std::vector<std::string> lines_;
  std::map<std::string, std::uint64_t> counted_; // as stats() said last
  sharing_config config_;
  caf::actor_system system_{config_};
  int runners_ = 1; // of all replicas
};

inline std::shared_ptr<faults> failing(std::function<void(int)> on_step) {
  auto script = std::make_shared<faults>();
  script->on_step = std::move(on_step);
  return script;
}

/// Stops in that step: signals `reached` and waits for `release`.
inline std::shared_ptr<faults> waiting_at(int step, std::promise<void>& reached, std::promise<void>& release) {
  return failing([step, &reached, released = release.get_future().share()](int now) {
    if (now == step) {
      reached.set_value();
      released.wait();
    }
  });
}

inline generation ask(int prompt, int max_tokens) {
  generation g;
  std::mt19937 rng(static_cast<unsigned>(prompt * 1000 + max_tokens));
  for (int i = 0; i < prompt; ++i)
    g.prompt.push_back(static_cast<token_id>(5 + rng() % 700));
  g.sampling.temperature = 0;
  g.sampling.max_tokens = max_tokens;
  g.sampling.ignore_eos = true;
  return g;
}

/// Requests of all kinds, more than run at once, so that any fault meets waiting, prefilling, decoding and ended ones.
inline std::vector<generation> mixed_work() {
  std::vector<generation> work{ask(5, 12), ask(100, 6), ask(3, 20), ask(40, 9), ask(20, 14), ask(1, 1)};
  auto& penalised = work[0].sampling;
  penalised.temperature = 1.2f;
  penalised.repetition_penalty = 1.3f;
  penalised.presence_penalty = 0.7f;
  penalised.seed = 11;
  auto& three = work[2].sampling;
  three.n = 3;
  three.temperature = 1;
  three.seed = 12;
  three.logprobs = 2;
  three.stop = {"e", "the"};
  auto& two = work[4].sampling;
  two.n = 2;
  two.temperature = 0.8f;
  two.seed = 13;
  two.ignore_eos = false;
  two.min_tokens = 3;
  return work;
}

inline std::vector<heard> undisturbed(const std::vector<generation>& work, const engine_options& options = small()) {
  troubled_engine e(std::make_shared<faults>(), options);
  std::vector<heard> all;
  for (const auto& g : work)
    all.push_back(e.run(g));
  return all;
}

/// Runs all at once, the long prompt paused until the first has ended; returns the number of steps.
inline int check_same(troubled_engine& e, const std::vector<generation>& work, const std::vector<heard>& expected) {
  std::deque<listener> clients(work.size());
  std::vector<request_actor> requests;
  for (std::size_t i = 0; i < work.size(); ++i)
    requests.push_back(e.submit(work[i], clients[i]));
  caf::anon_send(requests[1], pause_atom::value, true);
  for (std::size_t i = 0; i < work.size(); ++i) {
    CAPTURE(i);
    REQUIRE(clients[i].wait());
    caf::anon_send(requests[1], pause_atom::value, false);
    const auto heard = clients[i].result();
    CHECK(same(heard, expected[i]));
    REQUIRE(heard.done.has_value());
    CHECK(heard.done->prompt_tokens == expected[i].done->prompt_tokens);
    CHECK(heard.done->completion_tokens == expected[i].done->completion_tokens);
  }
  return e.script->steps;
}

[[noreturn]] inline void fail_device() { throw kernels::device_error("cuLaunchKernel(attention): it failed"); }

} // namespace troupe::testing
