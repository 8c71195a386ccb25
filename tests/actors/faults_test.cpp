// The engine when its actors fail: a real worker group over a small model, on a device that fails at chosen steps.
// Clients notice a pause at most; their results are the same bits.
#include "actors/actor_counts.hpp"
#include "actors/engine.hpp"
#include "actors/messages/admission.hpp"
#include "actors/messages/endings.hpp"
#include "actors/messages/guides.hpp"
#include "actors/messages/roles.hpp"
#include "actors/messages/sampling.hpp"
#include "actors/request.hpp"
#include "runtime/engine/loading/replica_roles.hpp"
#include "runtime/engine/suspects.hpp"
#include "runtime/guide/guide_source.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/amateur/technique.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "runtime/techniques/tree_search/technique.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/actors/faulty_device.hpp"
#include "tests/listener.hpp"
#include "tests/sanitized.hpp"
#include "tests/test_data.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <semaphore>
#include <span>
#include <thread>
#include <unistd.h>

using namespace troupe;
using namespace troupe::testing;

namespace {

struct sharing_config : caf::actor_system_config {
  sharing_config() {
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", std::size_t(2));
  }
};

engine_options small() {
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
std::uint64_t in_use(const replica_stats& s) {
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
    for (int i = 0; i < 1'000'000; ++i, std::this_thread::yield())
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
        [](const guide_compiled&) {},
        [](ended_atom, std::uint64_t, const hypotheses_ptr&) {},
        [](const guesses_verified&) {},
        [](failed_atom, std::uint64_t, const error&) {},
        [](pause_atom, bool) {},
        [](cancel_atom) {},
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

std::shared_ptr<faults> failing(std::function<void(int)> on_step) {
  auto script = std::make_shared<faults>();
  script->on_step = std::move(on_step);
  return script;
}

/// Stops in that step: signals `reached` and waits for `release`.
std::shared_ptr<faults> waiting_at(int step, std::promise<void>& reached, std::promise<void>& release) {
  return failing([step, &reached, released = release.get_future().share()](int now) {
    if (now == step) {
      reached.set_value();
      released.wait();
    }
  });
}

generation ask(int prompt, int max_tokens) {
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
std::vector<generation> mixed_work() {
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

std::vector<heard> undisturbed(const std::vector<generation>& work, const engine_options& options = small()) {
  troubled_engine e(std::make_shared<faults>(), options);
  std::vector<heard> all;
  for (const auto& g : work)
    all.push_back(e.run(g));
  return all;
}

/// Runs all at once, the long prompt paused until the first has ended; returns the number of steps.
int check_same(troubled_engine& e, const std::vector<generation>& work, const std::vector<heard>& expected) {
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

/// Whether it computes a prompt of poisonous().
bool has_poison(const step_plan& plan) {
  return std::search_n(plan.tokens.begin(), plan.tokens.end(), 4, token_id(3)) != plan.tokens.end();
}

generation poisonous() {
  auto g = ask(4, 20);
  g.prompt.assign(4, 3); // of no other prompt
  return g;
}

[[noreturn]] void fail_device() { throw kernels::device_error("cuLaunchKernel(attention): it failed"); }

std::shared_ptr<faults> failing_at_poison() {
  auto script = std::make_shared<faults>();
  script->on_plan = [](const step_plan& plan) {
    if (has_poison(plan))
      fail_device();
  };
  return script;
}

/// What came of runs of the same work, each with a fault in another step.
struct faulted_runs {
  int undisturbed_steps = 0, runs = 0;
  std::uint64_t undisturbed_moves = 0, restarts = 0, moves = 0;
};

/// Runs `work` without a fault, then with one in every `stride`-th step: clients receive the same.
faulted_runs with_faults_everywhere(const std::vector<generation>& work, int stride, const engine_options& options) {
  const auto expected = undisturbed(work);
  faulted_runs all;
  {
    troubled_engine calm(std::make_shared<faults>(), options);
    all.undisturbed_steps = check_same(calm, work, expected);
    all.undisturbed_moves = calm.settled()->total.moves.moved;
  }
  REQUIRE(all.undisturbed_steps > 20);
  for (int at = 1; at <= all.undisturbed_steps; at += stride, ++all.runs) {
    CAPTURE(at);
    troubled_engine e(failing([=](int step) {
                        if (step == at)
                          fail_device();
                      }),
                      options);
    check_same(e, work, expected);
    const auto stats = e.settled();
    REQUIRE(stats.has_value());
    CHECK(stats->total.restarts <= 1);
    all.restarts += stats->total.restarts;
    all.moves += stats->total.moves.moved;
  }
  return all;
}

} // namespace

TEST_CASE("what was counted before a restart stays counted") {
  troubled_engine e;
  e.run(ask(5, 12));
  const auto before = e.settled();
  REQUIRE(before.has_value());
  CHECK(before->total.scheduler.generated_tokens == 12);
  e.lose_scheduler();
  e.run(ask(40, 9));
  const auto after = e.settled();
  REQUIRE(after.has_value());
  CHECK(after->total.restarts == 1);
  CHECK(after->total.scheduler.generated_tokens == 21);
  CHECK(after->total.scheduler.prompt_tokens == 45);
  CHECK(after->total.scheduler.steps > before->total.scheduler.steps);
  CHECK(after->total.blocks.looked_up_tokens == before->total.blocks.looked_up_tokens + 40);
  CHECK(after->total.blocks.total == before->total.blocks.total);
  REQUIRE(after->replicas.size() == 1);
  CHECK(after->replicas[0].scheduler.steps == after->total.scheduler.steps);
}

TEST_CASE("a fault in any step of any work changes no event that clients receive") {
  const int stride = troupe::testing::address_sanitized() ? 5 : 1;
  const auto all = with_faults_everywhere(mixed_work(), stride, small());
  CHECK(all.restarts * 2 > static_cast<std::uint64_t>(all.runs)); // how much fits a step is a matter of timing
}

TEST_CASE("a fault in any step on two replicas changes no event that clients receive") {
  auto options = small();
  options.replicas = options.compute.threads = 2;
  options.kv_cache_bytes *= 2;
  CHECK(with_faults_everywhere(mixed_work(), 5, options).restarts > 0);
}

TEST_CASE("a fault in any step of any stage changes no event that clients receive") {
  auto options = small();
  options.stages = options.compute.threads = 2;
  const auto all = with_faults_everywhere(mixed_work(), 7, options);
  CHECK(all.undisturbed_steps > 40); // of all stages
  CHECK(all.restarts > 2);
}

TEST_CASE("a fault in any step of either role, also amid a transfer, changes no event that clients receive") {
  auto work = mixed_work();
  work.push_back(ask(120, 30));
  work.push_back(ask(150, 12));
  auto options = small();
  options.roles = "prefill:1,decode:1";
  options.compute.threads = 2;
  options.kv_cache_bytes *= 2;
  const auto all = with_faults_everywhere(work, 3, options);
  CHECK(all.restarts > 0);
  CHECK(all.undisturbed_moves > 3);
  CHECK(all.moves > 0);
}

TEST_CASE("a replica that is lost for good leaves the other one serving, and the status says so") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  auto options = small();
  options.replicas = options.compute.threads = 2;
  options.kv_cache_bytes *= 2;
  std::atomic<bool> lose_another = false;
  troubled_engine e(failing([&](int step) {
                      if (step == 6 || lose_another)
                        throw kernels::device_error("it fell off the bus", true);
                    }),
                    options);
  check_same(e, work, expected);
  const auto status = e.wait_for(load_status::stage::ready);
  CHECK(status.degraded.starts_with("1 of 2 replicas are left: replica "));
  CHECK(status.degraded.ends_with(": the device is lost: it fell off the bus"));
  const auto stats = e.settled();
  REQUIRE(stats.has_value());
  CHECK(stats->replicas.size() == 2);
  check_same(e, work, expected);
  CHECK(e.script->runners == 2);
  lose_another = true;
  CHECK(e.run(ask(10, 30)).failed->message == "the device is lost: it fell off the bus");
  CHECK(e.wait_for(load_status::stage::failed).why.has_value());
}

TEST_CASE("work continues after three faults in a row, whatever is thrown and by whichever actor") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  auto script = failing([](int step) {
    if (step == 4)
      throw std::bad_alloc();
    if (step == 11)
      throw std::runtime_error("a bug");
  });
  script->on_runner = [](int n) {
    if (n == 2) // the replacement of the first
      fail_device();
  };
  troubled_engine e(script);
  check_same(e, work, expected);
  CHECK(e.settled()->total.restarts == 3);
  const auto lines = e.lines();
  const auto told = [&](const std::string& why) {
    return std::ranges::count(lines, "a part of the engine failed and was restarted: " + why);
  };
  CHECK(told("there is not enough memory") == 1);
  CHECK(told("cuLaunchKernel(attention): it failed") == 1);
  CHECK(told("a bug") == 1);
}

TEST_CASE("contrasted requests survive faults of the model, and of the amateur, with the same bits") {
  auto options = small();
  options.model = golden("qwen3");
  options.techniques["amateur"] = {golden("qwen2")};
  auto work = mixed_work();
  for (std::size_t i = 0; i < work.size(); ++i)
    if (i % 2 == 0)
      work[i].sampling.techniques.set(contrasted_by({.beta = 1}));
    else
      work[i].sampling.techniques.set(contrasted_with(dola_layers({0, 1})));
  const auto expected = undisturbed(work, options);
  for (const int at : {3, 8, 13}) {
    CAPTURE(at);
    troubled_engine e(failing([=](int step) {
                        if (step == at)
                          fail_device();
                      }),
                      options);
    check_same(e, work, expected);
    CHECK(e.settled()->total.restarts == 1);
  }
}

TEST_CASE("a scheduler that dies is replaced like any other actor") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  std::promise<void> reached, release;
  troubled_engine e(waiting_at(8, reached, release));
  std::thread killer([&] {
    reached.get_future().wait();
    e.lose_scheduler();
    release.set_value();
  });
  check_same(e, work, expected);
  killer.join();
  CHECK(e.settled()->total.restarts == 1);
}

TEST_CASE("between two worker groups requests are accepted, refused and cancelled") {
  const auto before = ask(10, 30), during = ask(20, 10);
  const auto expected = undisturbed({before, during});
  std::promise<void> reached, release;
  troubled_engine e(waiting_at(5, reached, release));
  listener running, accepted, cancelled;
  e.submit(before, running);
  reached.get_future().wait();
  e.lose_scheduler();
  e.submit(during, accepted);
  auto impossible = during;
  impossible.prompt = {};
  CHECK(e.run(impossible).failed->param == "prompt");
  caf::anon_send(e.submit(during, cancelled), cancel_atom::value);
  REQUIRE(cancelled.wait());
  CHECK(cancelled.result().finish.at(0) == finish_reason::cancelled);
  release.set_value();
  REQUIRE(running.wait());
  REQUIRE(accepted.wait());
  CHECK(same(running.result(), expected[0]));
  CHECK(same(accepted.result(), expected[1]));
  CHECK(e.settled()->total.restarts == 1);
}

TEST_CASE("between two worker groups no more requests are accepted than fit the queue") {
  const auto before = ask(10, 30), during = ask(20, 10);
  const auto expected = undisturbed({during});
  std::promise<void> reached, release;
  auto options = small();
  options.max_queue = 2; // beside the four that may run
  troubled_engine e(waiting_at(5, reached, release), options);
  listener running;
  e.submit(before, running);
  reached.get_future().wait();
  e.lose_scheduler();
  std::deque<listener> clients(8);
  for (auto& c : clients)
    e.submit(during, c);
  const auto refused = [&] {
    return std::ranges::count_if(clients, [](listener& c) {
      const auto heard = c.result();
      return heard.failed && heard.failed->code == errc::overloaded;
    });
  };
  for (int i = 0; i < 1'000'000 && refused() < 3; ++i) // before there is room again
    std::this_thread::yield();
  release.set_value();
  REQUIRE(running.wait());
  CHECK(running.result().done.has_value());
  int done = 0;
  for (auto& c : clients) {
    REQUIRE(c.wait());
    const auto heard = c.result();
    done += heard.done && same(heard, expected[0]);
  }
  CHECK(done == 5);
  CHECK(refused() == 3);
}

TEST_CASE("an engine that is stopped between two worker groups tells every client") {
  std::promise<void> reached, release;
  listener running, waiting;
  troubled_engine e(waiting_at(5, reached, release));
  e.submit(ask(10, 30), running);
  reached.get_future().wait();
  e.lose_scheduler();
  e.submit(ask(20, 10), waiting);
  e.stop();
  REQUIRE(running.wait());
  REQUIRE(waiting.wait());
  CHECK(running.result().finish.at(0) == finish_reason::cancelled);
  release.set_value();
  e.wait_for(load_status::stage::stopped);
  CHECK(e.script->runners == 1);
}

TEST_CASE(
  "while every step fails new requests are refused with a sentence, and those that wait go on when it is over") {
  const auto work = ask(10, 30);
  const auto expected = undisturbed({work});
  std::atomic<bool> broken = true;
  troubled_engine e(failing([&](int) {
    if (broken)
      fail_device();
  }));
  std::deque<listener> clients(3), late;
  for (auto& c : clients)
    e.submit(work, c);
  const std::string reason = "the engine is not able to run: a part of it fails again and again, and is started again "
                             "every ";
  for (bool refused = false; !refused;) {
    const auto told = e.wait_until([](const load_status& s) { return !s.degraded.empty(); });
    CHECK(told.degraded.starts_with(reason));
    CHECK(told.degraded.ends_with(" s: cuLaunchKernel(attention): it failed"));
    CHECK(told.now == load_status::stage::ready);
    e.submit(ask(1, 1), late.emplace_back()); // taken, if it runs again at that moment
    e.wait_until([&](const load_status& s) {
      const auto heard = late.back().result();
      refused = heard.failed && heard.failed->code == errc::unavailable && heard.failed->message.starts_with(reason);
      return refused || s.degraded.empty();
    });
  }
  broken = false;
  for (auto& c : clients) {
    REQUIRE(c.wait());
    CHECK(same(c.result(), expected[0]));
  }
  for (auto& c : late)
    REQUIRE(c.wait());
  CHECK(e.wait_until([](const load_status& s) { return s.degraded.empty(); }).now == load_status::stage::ready);
  CHECK(same(e.run(work), expected[0]));
}

TEST_CASE("a request at which every step fails is refused by itself, and the others get on with the same bits") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  for (const int replicas : {1, 2}) {
    CAPTURE(replicas);
    auto options = small();
    options.replicas = options.compute.threads = replicas;
    options.kv_cache_bytes *= static_cast<std::size_t>(replicas);
    troubled_engine e(failing_at_poison(), options);
    listener one, two;
    e.submit(poisonous(), one);
    e.submit(poisonous(), two);
    check_same(e, work, expected);
    for (auto* client : {&one, &two}) {
      REQUIRE(client->wait());
      REQUIRE(client->result().failed.has_value());
      CHECK(client->result().failed->code == errc::poisoned);
      CHECK(client->result().failed->message ==
            "a part of the engine failed each time that it ran this request: cuLaunchKernel(attention): it failed");
    }
    const auto before = e.settled();
    REQUIRE(before.has_value());
    CHECK(before->total.restarts >= 4);
    CHECK(before->total.restarts <= 16);
    check_same(e, work, expected);
    CHECK(e.settled()->total.restarts == before->total.restarts);
  }
}

TEST_CASE("a poisonous request that comes alone is refused after a few failures") {
  troubled_engine e(failing_at_poison());
  CHECK(e.run(poisonous()).failed->code == errc::poisoned);
  CHECK(e.settled()->total.restarts == suspects::most_alone);
  CHECK(e.run(ask(10, 3)).done.has_value());
}

TEST_CASE("actors that are killed again and again make nobody suspect, and every request ends with the same bits") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  constexpr int kills = 6;
  std::counting_semaphore<> wanted(0), killed(0);
  troubled_engine e(failing([&](int step) {
    if (step % 3 == 0 && step <= 3 * kills)
      wanted.release(), killed.acquire();
  }));
  std::thread killer([&] {
    for (int i = 0; i < kills; ++i) {
      wanted.acquire();
      e.lose_scheduler();
      killed.release();
    }
  });
  check_same(e, work, expected);
  killer.join();
  CHECK(e.settled()->total.restarts == kills);
}

TEST_CASE("a replica that fails as it starts is started again until it does not, and no request is blamed") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  auto script = failing([](int step) {
    if (step == 4)
      fail_device();
  });
  script->on_runner = [](int n) {
    if (n > 1 && n < 8)
      throw std::bad_alloc();
  };
  troubled_engine e(script);
  check_same(e, work, expected);
  CHECK(e.settled()->total.restarts == 7);
}

TEST_CASE("a guided answer goes on within a string after the death of its replica, valid and with the same bits") {
  auto g = ask(20, 200);
  g.sampling.ignore_eos = false;
  g.guide = std::make_shared<const guides::guide_source>(guides::guide_source{
    .what = guides::guide_source::kind::json_schema,
    .text = R"({"type":"object","properties":{"name":{"type":"string","minLength":20,"maxLength":40}},
                "required":["name"],"additionalProperties":false})",
    .compact = true});
  const auto expected = undisturbed({g}).front();
  REQUIRE(expected.finish.at(0) == finish_reason::stop);
  const auto whole = json::document::parse(expected.text.at(0), "the answer", errc::internal);
  CHECK(json::find(whole.root(), "name").value().get_string().value().size() >= 20);
  const auto& ids = expected.ids.at(0);
  const auto words = tokenizer::load(golden("llama-gqa"));
  for (std::size_t known = ids.size() / 4; known < ids.size() * 3 / 4; known += 3) {
    CAPTURE(known);
    const auto before = words->decode(std::span(ids).first(known), true);
    REQUIRE(std::ranges::count(before, '"') == 3);
    auto script = std::make_shared<faults>();
    script->on_plan = [&, failed = false](const step_plan& plan) mutable {
      const auto& rows = plan.sequences.at(0);
      if (!failed && rows.first_position + rows.rows >= static_cast<std::int32_t>(g.prompt.size() + known))
        failed = true, fail_device();
    };
    troubled_engine e(script);
    CHECK(same(e.run(g), expected));
    CHECK(e.settled()->total.restarts == 1);
  }
}

TEST_CASE("an engine that is killed itself says so to its listener and to every client") {
  std::promise<void> reached, release;
  troubled_engine e(waiting_at(5, reached, release));
  listener running, late;
  e.submit(ask(10, 30), running);
  reached.get_future().wait();
  caf::anon_send_exit(e.engine, caf::exit_reason::kill);
  CHECK(e.wait_for(load_status::stage::failed).why->message == "the supervisor of the engine was ended from outside");
  release.set_value();
  REQUIRE(running.wait());
  CHECK(running.result().failed->message == "the engine has stopped");
  e.submit(ask(1, 1), late);
  REQUIRE(late.wait());
  CHECK(late.result().failed->message == "the engine has stopped");
}

TEST_CASE("nothing is restarted after the loss of the device's context") {
  troubled_engine e(failing([](int step) {
    if (step == 3)
      throw kernels::device_error("cuStreamSynchronize: an illegal memory access was encountered", true);
  }));
  const std::string sentence = "the device is lost: cuStreamSynchronize: an illegal memory access was encountered";
  CHECK(e.run(ask(10, 30)).failed->message == sentence);
  CHECK(e.wait_for(load_status::stage::failed).why->message == sentence);
  CHECK(e.run(ask(1, 1)).failed->message == sentence);
  CHECK(e.script->runners == 1);
}

TEST_CASE("a reward model that fails is loaded again each time, but for files that are not what they were") {
  sharing_config config;
  caf::actor_system system(config);
  std::atomic<bool> breaks = false;
  const auto script = failing([&breaks](int) {
    if (breaks)
      throw kernels::device_error("the device is gone", true);
  });
  auto load_judge = [script](const engine_options& o, const progress_sink&) -> loaded_model_ptr {
    auto model = std::make_shared<loaded_model>(*load_model(o, {}));
    for (auto& each : model->replicas)
      for (auto& stage : each.stages)
        stage = std::make_shared<faulty_device>(stage, script);
    return model;
  };
  std::mutex mutex;
  std::condition_variable changed;
  load_status status;
  int reloads = 0;
  auto listen = [&](const load_status& s, const loaded_model_ptr&) {
    const std::lock_guard lock(mutex);
    status = s;
    reloads += s.line == "the reward model failed and is loaded again: the device is lost: the device is gone";
    changed.notify_all();
  };
  const auto wait_until = [&](const std::function<bool()>& seen) {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::minutes(5), seen));
  };
  auto options = small();
  const auto folder = std::filesystem::temp_directory_path() / ("troupe-judge-" + std::to_string(getpid()));
  std::filesystem::copy(test_data() + "/tiny_reward", folder, std::filesystem::copy_options::recursive);
  options.techniques["reward_model"] = {folder.string()};
  auto engine = spawn_engine(system, options, listen, loader_with(), load_judge);
  wait_until([&] { return status.now == load_status::stage::ready; });
  const auto run = [&](search_value value) {
    generation g;
    g.prompt = {0, 54, 51};
    g.sampling.temperature = 0;
    g.sampling.max_tokens = 4;
    g.sampling.ignore_eos = true;
    g.sampling.techniques.set(searched_by({.simulations = 12, .branching = 3, .parallel = 2, .value = value}));
    listener l;
    spawn_request(system, engine, std::make_shared<const generation>(g), client_line(l.sink()));
    REQUIRE(l.wait());
    return l.result();
  };
  const auto first = run(search_value::model);
  REQUIRE(first.done);
  for (int times = 1; times <= 5; ++times) {
    breaks = true;
    const auto failed = run(search_value::model).failed;
    REQUIRE(failed);
    CHECK(failed->message.find("reward model") != std::string::npos);
    wait_until([&] { return reloads == times; });
    CHECK(status.degraded.empty());
    breaks = false;
    auto again = run(search_value::model);
    for (; !again.done; again = run(search_value::model)) {
      CHECK(again.failed->code == errc::unavailable);
      CHECK(again.failed->message == "the reward model is being loaded again after a failure");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CHECK(again.ids == first.ids);
  }
  const auto config_file = folder / "config.json";
  const auto written = std::filesystem::last_write_time(config_file);
  for (const bool changes : {true, false}) {
    CAPTURE(changes);
    if (changes)
      std::filesystem::last_write_time(config_file, written + std::chrono::seconds(1));
    else
      std::filesystem::rename(config_file, folder / "elsewhere");
    breaks = true;
    CHECK(run(search_value::model).failed);
    breaks = false;
    wait_until([&] { return status.degraded.find(changes ? " has changed" : " has vanished") != std::string::npos; });
    CHECK(status.now == load_status::stage::ready);
    CHECK(status.degraded.starts_with("searches with a reward model fail, as it fails again and again, and is loaded "
                                      "again every "));
    CHECK(status.degraded.find(" s: " + std::filesystem::canonical(folder).string()) != std::string::npos);
    CHECK(!run(search_value::model).done);
    CHECK(run(search_value::likelihood).done); // all else goes on
    if (changes)
      std::filesystem::last_write_time(config_file, written);
    else
      std::filesystem::rename(folder / "elsewhere", config_file);
    wait_until([&] { return status.degraded.empty(); });
    CHECK(run(search_value::model).ids == first.ids);
  }
  caf::anon_send_exit(engine, caf::exit_reason::user_shutdown);
  engine = engine_actor();
  system.await_all_actors_done();
  CHECK(script->alive == 0);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a load that gets no memory or no thread ends with a sentence, for the engine and for its requests") {
  caf::actor_system_config config;
  caf::actor_system system(config);
  const std::vector<std::function<void()>> troubles{
    [] { throw std::bad_alloc(); },
    [] { throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)); },
  };
  for (const auto& trouble : troubles) {
    std::promise<error> failed;
    auto listen = [&](const load_status& s, const loaded_model_ptr&) {
      if (s.now == load_status::stage::failed)
        failed.set_value(*s.why);
    };
    auto load = [&](const engine_options&, const progress_sink&) -> loaded_model_ptr {
      trouble();
      return nullptr;
    };
    auto engine = spawn_engine(system, small(), listen, load);
    const auto why = failed.get_future().get();
    CHECK(why.code == errc::out_of_memory);
    CHECK(!why.message.empty());
    listener l;
    spawn_request(system, engine, std::make_shared<const generation>(ask(1, 1)), client_line(l.sink()));
    REQUIRE(l.wait());
    CHECK(l.result().failed->code == errc::out_of_memory);
    caf::anon_send_exit(engine, caf::exit_reason::user_shutdown);
  }
  system.await_all_actors_done();
}

TEST_CASE("after cancellations, time-outs and restarts no actor's queue seems to hold messages") {
  std::mt19937 random(5);
  const auto queued = [] {
    std::string kinds;
    for (const auto& each : actor_counts::all())
      if (each.queued > 0)
        kinds += each.kind + ' ' + std::to_string(each.queued) + ' ';
    return kinds;
  };
  troubled_engine e;
  for (int round = 0; round < 3; ++round) { // with a restart each
    actor_counts::begin_watch();
    std::deque<listener> clients(24);
    std::vector<request_actor> requests;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      auto g = ask(1 + static_cast<int>(random() % 60), 30);
      if (i % 3 == 0)
        g.timeout = std::chrono::milliseconds(1 + random() % 20);
      requests.push_back(e.submit(g, clients[i]));
      if (i % 4 == 1)
        caf::anon_send(requests[random() % requests.size()], cancel_atom::value);
      if (i == 15) { // what is queued now is handled while nobody watches
        actor_counts::end_watch();
        std::this_thread::yield();
        actor_counts::begin_watch();
      }
    }
    e.lose_scheduler();
    for (auto& client : clients)
      REQUIRE(client.wait());
    REQUIRE(e.settled().has_value());
    for (int i = 0; i < 60'000 && !queued().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(queued() == "");
    actor_counts::end_watch();
  }
}
