#include "actors/executor.hpp"

#include "actors/spawn.hpp"

#include <deque>

namespace troupe {

namespace {

class executor_state {
public:
  static constexpr const char* name = "executor";

  executor_state(executor_actor::pointer self, const model_replica& what, sampler_actor sampler, kv_mover_actor writer)
    : self_(self),
      self_handle_(self),
      sampler_(std::move(sampler)),
      writer_(std::move(writer)),
      runner_(what.make_runner()) {}

  executor_actor::behavior_type make_behavior() {
    return {
      [this](plan_atom, const step_plan_ptr& plan) { plans_.push_back(plan), run(); },
      [this](tokens_atom, const step_tokens_ptr& tokens) { fill_placeholders(*tokens), run(); },
      [this](attach_atom, const scheduler_actor& scheduler) {
        scheduler_ = caf::actor_cast<caf::weak_actor_ptr>(scheduler);
      },
    };
  }

private:
  void fill_placeholders(const step_tokens& tokens) {
    runner_->receive(tokens);
    tokens_known_up_to_ = tokens.step;
  }

  void run() {
    while (!plans_.empty() && plans_.front()->after_tokens_of <= tokens_known_up_to_) {
      auto plan = std::move(plans_.front());
      plans_.pop_front();
      if (plan->tokens.empty()) {
        runner_->move(plan->moves);
        pass_on_images(*plan);
        continue;
      }
      auto message = std::make_shared<step_logits>();
      message->output = runner_->run(*plan);
      message->plan = plan;
      self_->send(sampler_, logits_atom::value, step_logits_ptr(std::move(message)), executor_actor(self_));
      pass_on_images(*plan);
    }
  }

  void pass_on_images(const step_plan& plan) {
    auto images = std::make_shared<std::vector<block_image_ptr>>();
    for (const auto& move : plan.moves)
      if (move.what == block_move::kind::save)
        images->push_back(move.image);
    if (images->empty())
      return;
    if (auto alive = caf::actor_cast<caf::strong_actor_ptr>(scheduler_))
      self_->send(writer_, save_atom::value, block_images_ptr(std::move(images)),
                  caf::actor_cast<scheduler_actor>(alive));
  }

  executor_actor::pointer self_;
  // Only an exit message may end the actor: the state must be destroyed on its own thread.
  executor_actor self_handle_;
  sampler_actor sampler_;
  kv_mover_actor writer_;
  caf::weak_actor_ptr scheduler_; // which holds the executor
  std::unique_ptr<step_runner> runner_;
  std::deque<step_plan_ptr> plans_;
  std::uint64_t tokens_known_up_to_ = 0;
};

} // namespace

executor_actor spawn_executor(caf::actor_system& system, model_replica what, sampler_actor sampler,
                              kv_mover_actor writer) {
  return spawn_state<executor_actor, executor_state, caf::detached>(system, std::move(what), std::move(sampler),
                                                                    std::move(writer));
}

} // namespace troupe
