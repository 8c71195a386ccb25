#include "actors/sampler.hpp"

#include "actors/messages/introductions.hpp"
#include "actors/messages/judging.hpp"
#include "actors/messages/reminders.hpp"
#include "actors/messages/sampling.hpp"
#include "actors/spawn.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/sampling/judging.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/support/meter.hpp"

#include <caf/send.hpp>

#include <chrono>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <thread>

namespace troupe {

namespace {

class sampler_state {
public:
  static constexpr const char* name = "sampler";
  using accompanies = companion;

  sampler_state(sampler_actor::pointer self, const model_replica& what)
    : self_(self),
      self_handle_(self),
      away_(what.model->info.judge ? what.model->info.judge->away() : error()),
      sampler_(what.plan.last().make_sampler(
        spec_of(what), [me = caf::actor_cast<sampler_addr>(self)] { notify(me, sample_done{}); })) {
    self_->set_down_handler([this](caf::down_msg& down) { detach(down.source); });
  }

  sampler_actor::behavior_type make_behavior() {
    return {
      [this](const scheduler_known& own) { scheduler_ = own.scheduler; },
      [this](const request_joined& joined) { attach(joined.request, joined.client); },
      [this](const judge_known& known) { follow(known.judge); },
      [this](plan_atom, const step_plan_ptr& plan) { sampler_->prepare(*plan); },
      [this](logits_atom, const step_logits_ptr& logits, const executor_actor& executor) { take(logits, executor); },
      [this](mask_ready) { go_on(), deliver_late(sampler_->collect_late()); },
      [this](masks_overdue) { go_on(); },
      [this](const order_settled& settled) { deliver_late(sampler_->settle(settled.its)); },
      [this](sample_done) { ++reported_, go_on(); },
      [this](device_check_due) { check(); },
    };
  }

private:
  using sampler_addr = caf::weak_actor_ptr;

  // Called on a thread of the device, on one that makes masks, or by this actor; possibly after its end. An exception would
  // end the process on those, so it waits until there is memory for the message. A handler that had its share gets no more.
  template <class Message>
  static void notify(const sampler_addr& me, Message what) {
    while (auto alive = caf::actor_cast<caf::strong_actor_ptr>(me))
      try {
        return caf::anon_send(caf::actor_cast<sampler_actor>(alive), what);
      } catch (const std::bad_alloc&) {
        if (const auto* share = meter::current(); share && share->is_spent())
          throw;
        alive = nullptr;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
  }

  sampler_spec spec_of(const model_replica& what) {
    auto spec = what.sampler();
    spec.host.late = [me = caf::actor_cast<sampler_addr>(self_)] { notify(me, mask_ready{}); };
    spec.host.judge.ask = [this](const judge_order_ptr& order) { // while it samples, on its thread
      if (judge_)
        self_->send(judge_, answers_to_value{order, sampler_actor(self_)});
      else
        self_->send(self_, order_settled{{.order = order, .why = away_}});
    };
    spec.host.judge.withdraw = [this](const judge_order_ptr& order) { // also at the end of this actor
      if (!judge_)
        return;
      try {
        caf::anon_send(judge_, order_unwanted{order});
      } catch (const std::bad_alloc&) { // then it values them for nothing
      }
    };
    return spec;
  }

  // What the one before was asked, it will not answer.
  void follow(const judge_actor& judge) {
    judge_ = judge;
    deliver_late(sampler_->settle({.why = away_}));
  }

  void attach(std::uint64_t request, const request_actor& client) {
    const auto [known, is_new] = requests_.try_emplace(client.address(), request);
    if (is_new)
      self_->monitor(client);
    else // it was elsewhere meanwhile
      clients_.erase(std::exchange(known->second, request));
    clients_.emplace(request, client);
  }

  void detach(const caf::actor_addr& client) {
    if (auto found = requests_.find(client); found != requests_.end()) {
      clients_.erase(found->second);
      requests_.erase(found);
    }
  }

  void take(const step_logits_ptr& logits, const executor_actor& executor) {
    waiting_.push_back({logits, executor});
    go_on();
  }

  // Samples steps and collects samples in their order, as far as their masks have been made, or are overdue.
  void go_on() {
    while (!waiting_.empty() && is_due(*waiting_.front().logits)) {
      const auto step = std::move(waiting_.front());
      waiting_.pop_front();
      sample(step.logits, step.executor);
    }
    while (reported_ > 0 && is_due(*on_device_.front())) {
      --reported_;
      on_device_.pop_front();
      deliver(std::make_shared<const step_result>(sampler_->collect()));
    }
  }

  bool is_due(const step_logits& step) {
    const auto now = self_->clock().now();
    if (!sampler_->lacks_masks(*step.plan) || (held_until_ && now >= *held_until_)) {
      held_until_.reset();
      return true;
    }
    if (!held_until_) {
      const auto longest = mask_patience(step.output.ms);
      held_until_ = now + longest;
      self_->delayed_send(self_, longest, masks_overdue{});
    }
    return false;
  }

  void sample(const step_logits_ptr& logits, const executor_actor& executor) {
    auto tokens = std::make_shared<const step_tokens>(sampler_->sample(logits->plan, logits->output));
    self_->send(executor, tokens_atom::value, tokens);
    if (tokens->sampled)
      return deliver(tokens->sampled);
    on_device_.push_back(logits);
    if (!std::exchange(checking_, true))
      self_->delayed_send(self_, check_interval, device_check_due{});
  }

  // A device that fails never reports its samples, so it is polled while any are outstanding.
  void check() {
    sampler_->check();
    checking_ = !on_device_.empty();
    if (checking_)
      self_->delayed_send(self_, check_interval, device_check_due{});
  }

  void deliver(const step_result_ptr& result) {
    self_->send(scheduler_, result_atom::value, result);
    tell_clients(result);
  }

  void deliver_late(step_result late) {
    if (!late.goes_on())
      return;
    const auto result = std::make_shared<const step_result>(std::move(late));
    self_->send(scheduler_, late_tokens_sampled{result});
    tell_clients(result);
  }

  void tell_clients(const step_result_ptr& result) {
    for (auto& scores : result->scores)
      if (auto client = clients_.find(scores.request); client != clients_.end())
        self_->send(client->second, scores_atom::value, std::make_shared<const prompt_scores>(scores));
    for (auto& embedding : result->embeddings)
      if (auto client = clients_.find(embedding.request); client != clients_.end())
        self_->send(client->second, embedding_atom::value, std::make_shared<const prompt_embedding>(embedding));
    for (auto& judged : result->judged)
      if (auto client = clients_.find(judged.sequence.request); client != clients_.end())
        self_->send(client->second,
                    guesses_verified{.request = judged.sequence.request,
                                     .guesses = judged.guesses,
                                     .right = judged.accepted,
                                     .predicted = judged.predicted});
    for (auto& sampled : result->sampled)
      if (auto client = clients_.find(sampled.sequence.request); client != clients_.end())
        self_->send(client->second, token_sampled{sampled.sequence, sampled.token});
    for (auto& group : result->groups)
      if (auto client = clients_.find(group.request); group.told && client != clients_.end())
        self_->send(client->second, token_sampled{{group.request, 0}, *group.told});
    for (auto& [request, found] : result->hypotheses)
      if (auto client = clients_.find(request); client != clients_.end())
        self_->send(client->second, ended_atom::value, request, std::make_shared<const std::vector<hypothesis>>(found));
    for (auto& failed : result->failed)
      if (auto client = clients_.find(failed.sequence.request); client != clients_.end())
        self_->send(client->second, failed_atom::value, failed.sequence.request, failed.why);
  }

  static constexpr auto check_interval = std::chrono::milliseconds(500);

  sampler_actor::pointer self_;
  // Only an exit message may end the actor: a device's stream must be destroyed on its own thread.
  sampler_actor self_handle_;
  judge_actor judge_; // null: nobody judges
  const error away_;  // what searches are told then
  std::unique_ptr<step_sampler> sampler_;
  scheduler_actor scheduler_;
  std::map<std::uint64_t, request_actor> clients_;
  std::map<caf::actor_addr, std::uint64_t> requests_;
  struct step_to_sample {
    step_logits_ptr logits;
    executor_actor executor;
  };
  std::deque<step_to_sample> waiting_;                              // for masks, or for a step that does
  std::deque<step_logits_ptr> on_device_;                           // sampled there, not yet collected
  int reported_ = 0;                                                // of these, done
  bool checking_ = false;                                           // a check is due
  std::optional<std::chrono::steady_clock::time_point> held_until_; // the next step; none: it is not held back
};

} // namespace

sampler_actor spawn_sampler(caf::actor_system& system, model_replica what) {
  if (what.plan.last().capabilities().own_thread)
    return spawn_state<sampler_actor, sampler_state, caf::detached>(system, std::move(what));
  return spawn_state<sampler_actor, sampler_state>(system, std::move(what));
}

} // namespace troupe
