#include "runtime/execution/cpu/cpu_step_runner.hpp"

#include "runtime/engine/loader.hpp"

#include <algorithm>

namespace troupe {

cpu_step_runner::cpu_step_runner(std::shared_ptr<const loaded_model> model, std::unique_ptr<kernels::backend> backend)
  : model_(std::move(model)),
    backend_(std::move(backend)),
    decoder_(model_->weights, *backend_, model_->limits.step_tokens, model_->info.max_context),
    cache_(backend_->make_kv_cache(
      kv_shape_of(model_->weights->config, model_->numbers, static_cast<std::size_t>(model_->blocks)))),
    slot_tokens_(static_cast<std::size_t>(model_->limits.max_sequences)) {}

void cpu_step_runner::take(const step_tokens& tokens) {
  for (auto& sampled : tokens.sampled->sampled)
    slot_tokens_[static_cast<std::size_t>(sampled.slot)] = sampled.token.id;
}

step_output cpu_step_runner::run(const step_plan& plan) {
  tokens_ = plan.tokens;
  for (auto& t : tokens_)
    if (t < 0)
      t = slot_tokens_[static_cast<std::size_t>(slot_of(t))];
  copies_.clear();
  for (const auto& move : plan.moves) {
    if (move.what != block_move::kind::copy)
      throw kernels::device_error("a CPU has no host memory apart from its own to swap out blocks in");
    copies_.push_back({move.from, move.to});
  }
  backend_->copy_blocks(*cache_, copies_);
  const auto vocab = static_cast<std::size_t>(model_->info.vocab_size);
  kernels::tensor logits;
  auto memory = logits_.lend(std::max<std::size_t>(plan.logit_rows.size() * vocab, 1) * sizeof(float),
                             [this](std::size_t bytes) { return backend_->allocate(bytes); });
  logits.data = memory.get();
  logits.rows = plan.logit_rows.size();
  logits.cols = logits.stride = vocab;
  decoder_.forward(tokens_, {plan.sequences, plan.block_tables}, plan.logit_rows, *cache_, logits);
  return {std::static_pointer_cast<const float>(memory), vocab, nullptr};
}

} // namespace troupe
