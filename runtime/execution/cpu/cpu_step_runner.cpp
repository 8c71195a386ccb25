#include "runtime/execution/cpu/cpu_step_runner.hpp"

#include "kernels/activation_sparsity.hpp"
#include "runtime/execution/featured_rows.hpp"

#include <algorithm>
#include <chrono>

namespace troupe {

cpu_step_runner::cpu_step_runner(runner_spec spec, std::unique_ptr<kernels::backend> backend)
  : backend_(std::move(backend)),
    decoder_(std::move(spec.weights), *backend_, spec.sizes.rows, spec.sizes.context),
    cache_(backend_->make_kv_cache(
      kv_shape_of(decoder_.weights().config, spec.precision, static_cast<std::size_t>(spec.blocks)))),
    dola_(decoder_, *backend_),
    slot_tokens_(static_cast<std::size_t>(spec.sizes.sequences)) {}

void cpu_step_runner::receive(const step_tokens& tokens) {
  for (auto& sampled : tokens.sampled->sampled)
    slot_tokens_[static_cast<std::size_t>(sampled.slot)] = sampled.token.id;
}

step_output cpu_step_runner::run(const step_plan& plan) {
  const auto began = std::chrono::steady_clock::now();
  tokens_ = plan.tokens;
  for (auto& t : tokens_)
    if (t < 0)
      t = slot_tokens_[static_cast<std::size_t>(slot_of(t))];
  copies_.clear();
  for (const auto& move : plan.moves) {
    if (move.what != block_move::kind::copy)
      throw kernels::device_error("a CPU has no memory of its own to swap blocks to and from");
    copies_.push_back({move.from, move.to});
  }
  backend_->copy_blocks(*cache_, copies_);
  const auto vocab = static_cast<std::size_t>(decoder_.weights().config.vocab);
  kernels::tensor logits;
  auto memory = logits_.lend(logits_bytes(std::max<std::size_t>(plan.logit_rows.size(), 1), vocab),
                             [this](std::size_t bytes) { return backend_->allocate(bytes); });
  logits.data = memory.get();
  logits.rows = plan.logit_rows.size();
  logits.cols = logits.stride = vocab;
  const auto width = static_cast<std::size_t>(decoder_.weights().config.hidden);
  kernels::tensor hidden;
  kernels::buffer states;
  if (!plan.hidden_rows.empty()) {
    states = hidden_.lend(plan.hidden_rows.size() * width * sizeof(float),
                          [this](std::size_t bytes) { return backend_->allocate(bytes); });
    hidden = {states.get(), kernels::dtype::f32, plan.hidden_rows.size(), width, width};
  }
  adapters_.begin(adapted_rows_of(plan));
  decoder_.forward(tokens_, {plan.sequences, plan.block_tables}, plan.logit_rows, *cache_, logits, plan.hidden_rows,
                   hidden, dola_.keep_states(plan, steer(*backend_, steered_rows_of(plan))),
                   adapters_.empty() ? nullptr : &adapters_);
  adapters_.begin({}); // an adapter that is unloaded lives until its last step
  auto contrast = dola_.choose(plan, logits);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  return {std::static_pointer_cast<const float>(memory),
          vocab,
          nullptr,
          took.count(),
          std::static_pointer_cast<const float>(states),
          width,
          std::move(contrast)};
}

std::size_t cpu_step_runner::skipped_bytes() const {
  const auto* sparsity = dynamic_cast<const kernels::activation_sparsity*>(backend_.get());
  return sparsity == nullptr ? 0 : sparsity->skipped_bytes();
}

} // namespace troupe
