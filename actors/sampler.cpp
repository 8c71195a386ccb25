#include "actors/sampler.hpp"

#include "actors/spawn.hpp"
#include "runtime/step_sampler.hpp"

#include <map>

namespace troupe {

namespace {

class sampler_state {
public:
  static constexpr const char* name = "sampler";

  sampler_state(sampler_actor::pointer self, std::vector<token_id> eos_ids) : self_(self), sampler_(std::move(eos_ids)) {
    self_->set_down_handler([this](caf::down_msg& down) { forget(down.source); });
  }

  sampler_actor::behavior_type make_behavior() {
    return {
      [this](attach_atom, const scheduler_actor& scheduler) { scheduler_ = scheduler; },
      [this](attach_atom, std::uint64_t request, const request_actor& client) { attach(request, client); },
      [this](const step_logits_ptr& logits, const executor_actor& executor) { draw(*logits, executor); },
    };
  }

private:
  void attach(std::uint64_t request, const request_actor& client) {
    self_->monitor(client);
    clients_.emplace(request, client);
    requests_.emplace(client.address(), request);
  }

  void forget(const caf::actor_addr& client) {
    if (auto found = requests_.find(client); found != requests_.end()) {
      clients_.erase(found->second);
      requests_.erase(found);
    }
  }

  void draw(const step_logits& logits, const executor_actor& executor) {
    auto values = std::span(logits.values.get(), logits.plan->logit_rows.size() * logits.vocab);
    auto result = std::make_shared<const step_result>(sampler_.draw(*logits.plan, values));
    self_->send(executor, result);
    self_->send(scheduler_, result);
    for (auto& drawn : result->drawn)
      if (auto client = clients_.find(drawn.sequence.request); client != clients_.end())
        self_->send(client->second, drawn.sequence, drawn.token);
    for (auto& failed : result->failed)
      if (auto client = clients_.find(failed.sequence.request); client != clients_.end())
        self_->send(client->second, failed.why);
  }

  sampler_actor::pointer self_;
  step_sampler sampler_;
  scheduler_actor scheduler_;
  std::map<std::uint64_t, request_actor> clients_;
  std::map<caf::actor_addr, std::uint64_t> requests_;
};

} // namespace

sampler_actor spawn_sampler(caf::actor_system& system, std::vector<token_id> eos_ids) {
  return spawn_state<sampler_actor, sampler_state>(system, std::move(eos_ids));
}

} // namespace troupe
