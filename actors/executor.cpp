#include "actors/executor.hpp"

#include "actors/spawn.hpp"
#include "runtime/loader.hpp"

#include <algorithm>
#include <atomic>
#include <deque>

namespace troupe {

namespace {

class executor_state {
public:
  static constexpr const char* name = "executor";

  executor_state(executor_actor::pointer self, loaded_model_ptr model, sampler_actor sampler)
    : self_(self), model_(std::move(model)), sampler_(std::move(sampler)),
      backend_(kernels::make_cpu_backend(model_->device)),
      decoder_(model_->weights, *backend_, model_->limits.step_tokens, model_->info.max_context),
      cache_(backend_->make_kv_cache(kv_shape_of(model_->weights->config, model_->numbers,
                                                 static_cast<std::size_t>(model_->blocks)))),
      slot_tokens_(static_cast<std::size_t>(model_->limits.max_sequences)) {}

  executor_actor::behavior_type make_behavior() {
    return {
      [this](const step_plan_ptr& plan) { plans_.push_back(plan), run(); },
      [this](const step_result_ptr& result) { take_tokens(*result), run(); },
    };
  }

private:
  void take_tokens(const step_result& result) {
    for (auto& drawn : result.drawn)
      slot_tokens_[static_cast<std::size_t>(drawn.slot)] = drawn.token.id;
    tokens_known_of_ = result.step;
  }

  void run() {
    while (!plans_.empty() && plans_.front()->after_tokens_of <= tokens_known_of_) {
      auto plan = std::move(plans_.front());
      plans_.pop_front();
      execute(std::move(plan));
    }
  }

  void execute(step_plan_ptr plan) {
    tokens_ = plan->tokens;
    for (auto& t : tokens_)
      if (t < 0)
        t = slot_tokens_[static_cast<std::size_t>(slot_of(t))];
    backend_->copy_blocks(*cache_, plan->copies);
    const auto vocab = static_cast<std::size_t>(model_->info.vocab_size);
    kernels::tensor logits;
    auto memory = logits_memory(plan->logit_rows.size() * vocab);
    logits.data = memory.get();
    logits.rows = plan->logit_rows.size();
    logits.cols = logits.stride = vocab;
    decoder_.forward(tokens_, {plan->sequences, plan->block_tables}, plan->logit_rows, *cache_, logits);
    auto message = std::make_shared<step_logits>();
    message->plan = std::move(plan);
    message->values = std::static_pointer_cast<const float>(memory);
    message->vocab = vocab;
    self_->send(sampler_, step_logits_ptr(std::move(message)), executor_actor(self_));
  }

  // A buffer that the sampler has given back, or a new one. A CPU's device memory is host memory: it is lent as it is.
  kernels::buffer logits_memory(std::size_t values) {
    for (auto& lent : logits_)
      if (lent.memory.use_count() == 1 && lent.values >= values) {
        std::atomic_thread_fence(std::memory_order_acquire); // the sampler has read it to the end
        return lent.memory;
      }
    std::erase_if(logits_, [](auto& lent) { return lent.memory.use_count() == 1; });
    logits_.push_back({backend_->allocate(std::max<std::size_t>(values, 1) * sizeof(float)), values});
    return logits_.back().memory;
  }

  struct lent_buffer {
    kernels::buffer memory;
    std::size_t values = 0;
  };

  executor_actor::pointer self_;
  loaded_model_ptr model_;
  sampler_actor sampler_;
  std::unique_ptr<kernels::backend> backend_;
  decoder decoder_;
  std::unique_ptr<kernels::kv_cache> cache_;
  std::deque<step_plan_ptr> plans_;
  std::uint64_t tokens_known_of_ = 0;
  std::vector<token_id> slot_tokens_;   // the token last drawn for each slot
  std::vector<token_id> tokens_;        // of the step being run
  std::vector<lent_buffer> logits_;
};

} // namespace

executor_actor spawn_executor(caf::actor_system& system, loaded_model_ptr model, sampler_actor sampler) {
  return spawn_state<executor_actor, executor_state, caf::detached>(system, std::move(model), std::move(sampler));
}

} // namespace troupe
