// Worker groups as replicas under CAF's deterministic coordinator, which a test ends and starts, and what an engine that
// only routes between them knows. The test brings that engine.
#pragma once

#include "actors/messages/admission.hpp"
#include "runtime/scheduling/routing/router.hpp"
#include "tests/actors/worker_group.hpp"

#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace troupe::testing {

struct routing_script {
  explicit routing_script(router by = router()) : routes(std::move(by)) {}

  router routes;
  std::map<int, scheduler_actor> schedulers;
  std::shared_ptr<loaded_model> model;

  auto ask() const { return std::make_shared<const admit_reply>(admit_reply{.model = model, .asks = true}); }
  auto admit(const route& to, std::uint64_t number) const {
    return std::make_shared<const admit_reply>(admit_reply{.model = model,
                                                           .scheduler = schedulers.at(to.replica),
                                                           .replica = to.replica,
                                                           .moves_to = to.moves_to,
                                                           .expected_cached = to.cached_tokens,
                                                           .number = number,
                                                           .arrival = number});
  }
};

class routed_groups {
public:
  /// Its actors end, and requests will hear of it.
  void lose(int number) {
    const auto g = std::move(groups.at(number));
    groups.erase(number);
    routing_.routes.stop(number);
    routing_.schedulers.erase(number);
    for (auto a : {caf::actor_cast<caf::actor>(g.blocks), caf::actor_cast<caf::actor>(g.sampler),
                   caf::actor_cast<caf::actor>(g.executor), caf::actor_cast<caf::actor>(g.scheduler)})
      caf::anon_send_exit(a, caf::exit_reason::kill);
  }

  request_actor submit(const generation& g, std::vector<event>& events) {
    return spawn_request(system, engine, std::make_shared<const generation>(g),
                         client_line([&events](event e) { events.push_back(std::move(e)); }));
  }

private:
  testing_config config_;

protected:
  caf::actor_system system{config_};

public:
  caf::scheduler::test_coordinator& coordinator = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  scheduler_limits limits;

protected:
  struct group {
    kv_block_manager_actor blocks;
    sampler_actor sampler;
    executor_actor executor;
    scheduler_actor scheduler;
  };

  routed_groups(routing_script& routing, int replicas, int step_tokens, int blocks)
    : limits{.step_tokens = step_tokens, .max_sequences = 4, .max_queue = 8}, routing_(routing), blocks_(blocks) {
    auto model = std::make_shared<loaded_model>();
    model->info.vocab_size = vocab;
    model->info.max_context = 100;
    model->request_timeout = std::chrono::seconds(60);
    model->info.defaults.stops = {31};
    model->replicas.resize(static_cast<std::size_t>(replicas),
                           {.stages = {open_device({.device = "cpu", .threads = 1}, nullptr)}});
    model->capabilities = model->replicas.front().last().capabilities();
    routing_.model = model;
  }

  ~routed_groups() {
    while (!groups.empty())
      lose(groups.begin()->first);
    caf::anon_send_exit(engine, caf::exit_reason::kill);
    coordinator.run();
  }

  /// Makes the other actors of a group that has its block manager.
  group& start(int number, kv_block_manager_actor of, transport way = {}, bool sends = false) {
    auto& g = groups[number];
    g.blocks = std::move(of);
    g.sampler = spawn_sampler(system, replica_of(routing_.model));
    g.executor = spawn_state<executor_actor, counting_executor>(system, g.sampler, std::move(way));
    g.scheduler = spawn_scheduler(system, limits, {g.blocks, g.executor, g.sampler}, {}, {},
                                  {.engine = caf::actor_cast<caf::weak_actor_ptr>(engine),
                                   .replica = number,
                                   .life = ++lives_,
                                   .blocks = blocks_,
                                   .sends = sends});
    caf::anon_send(g.sampler, scheduler_known{g.scheduler});
    return g;
  }

  /// From now on requests may come to it.
  void open(int number, replica_role role = replica_role::any) {
    routing_.schedulers[number] = groups.at(number).scheduler;
    routing_.routes.start(number, lives_,
                          {.blocks = blocks_,
                           .slots = limits.max_sequences,
                           .queue = limits.max_queue,
                           .step_rows = limits.step_tokens,
                           .role = role});
    coordinator.run();
  }

  engine_actor engine;
  std::map<int, group> groups;

private:
  routing_script& routing_;
  const std::int32_t blocks_;
  std::uint64_t lives_ = 0;
};

/// `count` tokens, each one more than the one before.
inline std::vector<token_id> counting(token_id first, int count) {
  std::vector<token_id> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// A prompt of so many tokens, of which the last is `last`.
inline generation long_prompt(int tokens, token_id last, int max_tokens, int n = 1, token_id kind = 7) {
  generation g;
  g.prompt.assign(static_cast<std::size_t>(tokens), kind);
  g.prompt.back() = last;
  g.sampling.temperature = 0;
  g.sampling.max_tokens = max_tokens;
  g.sampling.n = n;
  return g;
}

} // namespace troupe::testing
