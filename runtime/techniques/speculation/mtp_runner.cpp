#include "runtime/techniques/speculation/mtp_runner.hpp"

#include "kernels/cpu/core_account.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

namespace troupe {

namespace {

using kernels::tensor;

/// Memory that outlives the call, and is not freed with the result.
std::shared_ptr<const float> lent(const std::vector<float>& from) {
  return {std::shared_ptr<const void>(), from.data()};
}

} // namespace

mtp_runner::mtp_runner(std::shared_ptr<const mtp_spec> spec, const runner_spec& runner,
                       std::unique_ptr<kernels::backend> backend)
  : spec_(std::move(spec)),
    backend_(std::move(backend)),
    decoder_(runner.weights, *backend_, runner.sizes.rows, runner.sizes.context),
    cache_(backend_->make_kv_cache(
      kv_shape_of(runner.weights->config, runner.precision, static_cast<std::size_t>(runner.blocks)))) {
  const auto rows = as_size(runner.sizes.rows), hidden = as_size(runner.weights->config.hidden);
  embedded_ = backend_->allocate(rows * hidden * sizeof(float));
  joined_ = backend_->allocate(rows * 2 * hidden * size_of(runner.weights->compute));
}

std::size_t mtp_runner::row_bytes(const model_config& config, kernels::dtype compute, int rows) {
  return as_size(rows) * as_size(config.hidden) * (sizeof(float) + 2 * size_of(compute));
}

void mtp_runner::normalise(const tensor& to, const tensor& from, const norm_weights& norm, const std::int32_t* rows) {
  backend_->rms_norm(to, from, static_cast<const float*>(norm.weight.get()), decoder_.weights().config.norm_eps, rows);
}

// What the layers read: a product of the normed embeddings of the tokens beside the normed states.
void mtp_runner::join(const step_plan& plan, const tensor& states) {
  const auto& layers = *spec_->layers;
  const auto rows = states.rows, hidden = states.cols;
  const auto compute = decoder_.weights().compute;
  const tensor embedded{embedded_.get(), kernels::dtype::f32, rows, hidden, hidden};
  const tensor all{joined_.get(), compute, rows, 2 * hidden, 2 * hidden};
  const auto half = [&](std::size_t i) {
    return tensor{static_cast<char*>(joined_.get()) + i * hidden * size_of(compute), compute, rows, hidden, 2 * hidden};
  };
  backend_->embed(embedded, *spec_->embedding->embedding, plan.tokens.data());
  if (const float scale = spec_->embedding->config.embedding_scale; scale != 1)
    backend_->scale(embedded, scale);
  normalise(half(0), embedded, layers.token_norm);
  normalise(half(1), states, layers.state_norm);
  backend_->linear(decoder_.receive(rows), all, *layers.joined);
}

step_output mtp_runner::run(const step_plan& plan, const stage_rows* before) {
  const auto cores = kernels::claim_cores(*backend_);
  const auto& head = *spec_->head;
  const auto rows = plan.tokens.size(), hidden = as_size(decoder_.weights().config.hidden),
             vocab = as_size(head.config.vocab);
  if (!before)
    throw failure(errc::internal, "multi-token prediction without the states of its rows");
  join(plan, {const_cast<float*>(before->rows.get()), kernels::dtype::f32, rows, hidden, hidden});
  decoder_.run({plan.sequences, plan.block_tables, nullptr}, *cache_);
  const auto residual = decoder_.residual();
  logits_.resize(plan.logit_rows.size() * vocab);
  hidden_.resize(plan.hidden_rows.size() * hidden);
  const tensor states{hidden_.data(), kernels::dtype::f32, plan.hidden_rows.size(), hidden, hidden};
  if (!plan.hidden_rows.empty()) {
    if (spec_->layers->chains_norm)
      normalise(states, residual, spec_->layers->final_norm, plan.hidden_rows.data());
    else
      backend_->gather_rows(states, residual, plan.hidden_rows.data());
  }
  if (!plan.logit_rows.empty()) {
    const tensor normed{joined_.get(), head.compute, plan.logit_rows.size(), hidden, hidden};
    const tensor logits{logits_.data(), kernels::dtype::f32, plan.logit_rows.size(), vocab, vocab};
    normalise(normed, residual, spec_->layers->final_norm, plan.logit_rows.data());
    backend_->linear(logits, normed, *head.head, static_cast<const float*>(head.head_bias.get()));
    if (head.config.logit_scale != 1 || head.config.logit_cap != 0)
      backend_->scale(logits, head.config.logit_scale, head.config.logit_cap);
  }
  return {.logits = lent(logits_), .vocab = vocab, .ready = {}, .hidden = lent(hidden_), .width = hidden};
}

} // namespace troupe
