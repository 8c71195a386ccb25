#include "runtime/execution/cpu/cpu_step_runner.hpp"

#include "kernels/activation_sparsity.hpp"
#include "kernels/cpu/core_account.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/execution/featured_rows.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// One hook that calls all of them in order; empty if there are none.
layer_hook in_order(std::vector<layer_hook> hooks) {
  if (hooks.size() < 2)
    return hooks.empty() ? layer_hook() : std::move(hooks.front());
  return [hooks = std::move(hooks)](int passed, const kernels::tensor& residual) {
    for (const auto& each : hooks)
      each(passed, residual);
  };
}

} // namespace

cpu_step_runner::cpu_step_runner(runner_spec spec, std::unique_ptr<kernels::backend> backend, int threads)
  : backend_(std::move(backend)),
    threads_(threads),
    decoder_(std::move(spec.weights), *backend_, spec.sizes.rows, spec.sizes.context),
    cache_(backend_->make_kv_cache(
      kv_shape_of(decoder_.weights().config, spec.precision, static_cast<std::size_t>(spec.blocks)))),
    image_offset_(spec.image_offset),
    state_offset_(spec.state_offset),
    slot_tokens_(static_cast<std::size_t>(spec.sizes.sequences)) {
  if (const auto* own = backend_->storable(); own && own->shards() == 1) // ranks wait for each other: all must run
    pool_ = &own->pool();
  if (const auto& config = decoder_.weights().config; config.has_states())
    states_ = dynamic_cast<kernels::recurrent_ops&>(*backend_).make_state_cache(
      state_shape_of(config, spec.sizes.sequences, spec.snapshots, most_state_guesses));
  for (const auto* each : repertoire())
    if (each->look_inside)
      inner_.push_back(each->look_inside(decoder_, *backend_));
  if (spec.host_blocks > 0)
    host_pool_ = backend_->allocate(static_cast<std::size_t>(spec.host_blocks) * block_bytes());
}

void cpu_step_runner::receive(const step_tokens& tokens) {
  for (auto& sampled : tokens.sampled->sampled)
    slot_tokens_[static_cast<std::size_t>(sampled.slot)] = sampled.token.id;
}

void cpu_step_runner::take_tokens(const step_plan& plan) {
  tokens_ = plan.tokens;
  for (auto& t : tokens_)
    if (t < 0)
      t = slot_tokens_[static_cast<std::size_t>(slot_of(t))];
}

step_output cpu_step_runner::run(const step_plan& plan, const stage_rows* before) {
  if (before && before->ready)
    before->ready->synchronise();
  const kernels::core_claim cores(pool_, pool_ ? 0 : threads_);
  const auto began = std::chrono::steady_clock::now();
  const auto& config = decoder_.weights().config;
  const kernels::recurrent_step recurrent{states_.get(), plan.states, plan.saves};
  const kernels::batch who{plan.sequences, plan.block_tables, states_ ? &recurrent : nullptr, plan.common};
  move(plan.moves);
  if (before) {
    tokens_ = before->tokens;
    const auto width = static_cast<std::size_t>(config.residual_width());
    decoder_.receive({const_cast<float*>(before->rows.get()), kernels::dtype::f32, plan.tokens.size(), width, width});
    decoder_.know(tokens_);
  } else {
    take_tokens(plan);
    decoder_.embed(tokens_, who);
  }
  added_products added(added_rows_of(plan));
  decoder_.run(who, *cache_, hook_of(plan, before), added.empty() ? nullptr : &added);
  step_output output;
  if (config.part().heads)
    conclude(plan, output);
  else
    output.passed = pass_on();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  output.ms = took.count();
  return output;
}

layer_hook cpu_step_runner::hook_of(const step_plan& plan, const stage_rows* before) {
  auto hooks = row_hooks(plan, *backend_, decoder_.weights().config.embedding_scale);
  for (std::size_t i = 0; i < inner_.size(); ++i)
    if (auto hook = inner_[i]->keep(plan, before && i < before->states.size() ? before->states[i].get() : nullptr))
      hooks.push_back(std::move(hook));
  return in_order(std::move(hooks));
}

void cpu_step_runner::conclude(const step_plan& plan, step_output& output) {
  const auto& config = decoder_.weights().config;
  const auto vocab = static_cast<std::size_t>(config.vocab), width = static_cast<std::size_t>(config.hidden);
  const auto allocate = [this](std::size_t bytes) { return backend_->allocate(bytes); };
  const auto memory = logits_.lend(logits_bytes(std::max<std::size_t>(plan.logit_rows.size(), 1), vocab), allocate);
  const kernels::tensor logits{memory.get(), kernels::dtype::f32, plan.logit_rows.size(), vocab, vocab};
  kernels::tensor hidden;
  kernels::buffer states;
  if (!plan.hidden_rows.empty()) {
    states = hidden_.lend(plan.hidden_rows.size() * width * sizeof(float), allocate);
    hidden = {states.get(), kernels::dtype::f32, plan.hidden_rows.size(), width, width};
  }
  decoder_.conclude(plan.logit_rows, logits, plan.hidden_rows, hidden);
  contrast_rows others{.of = decltype(contrast_rows::of)(plan.logit_rows.size())};
  for (const auto& each : inner_)
    each->contrast(plan, logits, others);
  if (!others.memory.empty())
    output.contrast = std::make_shared<const contrast_rows>(std::move(others));
  output.logits = std::static_pointer_cast<const float>(memory);
  output.vocab = vocab;
  output.hidden = std::static_pointer_cast<const float>(states);
  output.width = width;
}

std::shared_ptr<const stage_rows> cpu_step_runner::pass_on() {
  const auto from = decoder_.residual();
  const auto memory = passed_.lend(std::max<std::size_t>(from.rows, 1) * from.cols * sizeof(float),
                                   [this](std::size_t bytes) { return backend_->allocate(bytes); });
  if (from.rows > 0)
    backend_->gather_rows({memory.get(), kernels::dtype::f32, from.rows, from.cols, from.cols}, from);
  stage_rows result{.rows = std::static_pointer_cast<const float>(memory), .tokens = tokens_};
  for (const auto& each : inner_)
    result.states.push_back(each->pass_on());
  return std::make_shared<const stage_rows>(std::move(result));
}

// In order; neighbours of a kind together, for then all threads have work.
void cpu_step_runner::move(std::span<const block_move> moves) {
  while (!moves.empty()) {
    const auto end = std::ranges::find_if(moves, [&](const block_move& m) { return m.what != moves.front().what; });
    const auto alike = moves.first(static_cast<std::size_t>(end - moves.begin()));
    move_alike(alike);
    moves = moves.subspan(alike.size());
  }
}

void cpu_step_runner::move_alike(std::span<const block_move> moves) {
  using kind = block_move::kind;
  const auto slot = [this](std::int32_t index) {
    return static_cast<char*>(host_pool_.get()) + static_cast<std::size_t>(index) * block_bytes();
  };
  copies_.clear();
  exports_.clear();
  imports_.clear();
  state_copies_.clear();
  state_exports_.clear();
  state_imports_.clear();
  for (const auto& m : moves) {
    if (m.image && m.image->state) {
      auto* bytes = m.image->bytes.data() + state_offset_;
      if (m.what == kind::save)
        state_exports_.push_back({m.from, bytes});
      else
        state_imports_.push_back({bytes, m.to, m.image->position()});
      continue;
    }
    switch (m.what) {
      case kind::copy: copies_.push_back({m.from, m.to}); break;
      case kind::swap_out: exports_.push_back({m.from, slot(m.to)}); break;
      case kind::swap_in: imports_.push_back({slot(m.from), m.to}); break;
      case kind::save: exports_.push_back({m.from, m.image->bytes.data() + image_offset_}); break;
      case kind::load: imports_.push_back({m.image->bytes.data() + image_offset_, m.to}); break;
      case kind::copy_state: state_copies_.push_back({m.from, m.to}); break;
    }
  }
  if (states_) // else they are another stage's, or another model's
    move_states();
  backend_->copy_blocks(*cache_, copies_);
  if (exports_.empty() && imports_.empty())
    return;
  auto& transfer = dynamic_cast<kernels::block_transfer&>(*backend_);
  transfer.export_blocks(*cache_, exports_);
  transfer.import_blocks(*cache_, imports_);
}

void cpu_step_runner::move_states() {
  auto& ops = dynamic_cast<kernels::recurrent_ops&>(*backend_);
  ops.copy_states(*states_, state_copies_);
  ops.export_states(*states_, state_exports_);
  ops.import_states(*states_, state_imports_);
}

const kernels::activation_sparsity* cpu_step_runner::sparsity() const {
  return dynamic_cast<const kernels::activation_sparsity*>(backend_.get());
}

std::size_t cpu_step_runner::skipped_bytes() const { return sparsity() == nullptr ? 0 : sparsity()->skipped_bytes(); }

} // namespace troupe
