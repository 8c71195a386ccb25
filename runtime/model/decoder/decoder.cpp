#include "runtime/model/decoder/decoder.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"
#include "runtime/support/kv_blocks.hpp"

#include <algorithm>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

} // namespace

decoder::decoder(std::shared_ptr<const model_weights> weights, kernels::backend& backend, int max_rows, int max_context)
  : step_(std::move(weights), backend, max_rows, max_context),
    positions_(step_.config(), backend, max_context),
    inputs_(step_),
    attention_(step_, positions_),
    mlps_(step_) {
  if (step_.config().recurrent)
    states_.emplace(step_);
  if (const auto& config = step_.config(); config.grams.any(config.part().first, config.part().end))
    grams_.emplace(step_);
  if (step_.config().altup)
    streams_.emplace(step_);
  if (step_.config().hyper)
    hyper_.emplace(step_);
  if (step_.config().shared_blocks)
    blocks_.emplace(step_, attention_);
  if (step_.config().recurrent.type == recurrent_type::branches)
    attention_.convolve_with(convolutions_.emplace(step_));
}

void decoder::forward(std::span<const token_id> tokens, const kernels::batch& who,
                      std::span<const std::int32_t> logit_rows, kernels::kv_cache& cache, const tensor& logits,
                      std::span<const std::int32_t> hidden_rows, const tensor& hidden, const layer_hook& hook,
                      added_products* added) {
  embed(tokens, who);
  run(who, cache, hook, added);
  conclude(logit_rows, logits, hidden_rows, hidden);
}

void decoder::run(const kernels::batch& who, kernels::kv_cache& cache, const layer_hook& hook, added_products* added) {
  step_.add_to_products(added);
  check(who, cache);
  if (step_.rows() == 0)
    return;
  const auto& config = step_.config();
  if (streams_)
    return streams_->run(who, cache, hook, inputs_, attention_, mlps_);
  const auto residual = step_.residual(), normed = step_.normed();
  positions_.begin(who);
  if (states_)
    states_->begin(who);
  if (grams_)
    grams_->begin(*states_->current());
  if (convolutions_)
    convolutions_->begin(*states_->current());
  const auto part = config.part();
  if (blocks_ && !part.embeds)
    blocks_->begin();
  if (hook && part.embeds)
    hook(0, residual);
  if (hyper_ && part.embeds)
    hyper_->spread();
  if (blocks_ && part.embeds) // which the hook may have changed
    blocks_->begin();
  for (int i = part.first; i < part.end; ++i) {
    const auto& layer = step_.layer(i);
    const auto parts = config.parts_of(i);
    step_.walk.enter(as_size(i - part.first));
    if (layer.grams)
      grams_->add(i, hyper_ ? hyper_->streams() : residual);
    if (config.experts.early && config.is_sparse(i)) {
      step_.backend.gather_rows(normed, residual);
      mlps_.score_experts(normed, *layer.mixture);
    }
    if (hyper_ && parts.mixes())
      hyper_->read(*layer.hyper_attention);
    if (layer.block)
      blocks_->read(i, normed, cache, who);
    else if (parts.mixes())
      step_.normalise(normed, residual, layer.input_norm);
    if (hyper_)
      hyper_->clear();
    if (parts.recurrence)
      states_->add(i, normed);
    if (convolutions_)
      convolutions_->enter(i, branch_site::attention);
    if (parts.attention && !layer.block)
      attention_.add(i, normed, cache, who);
    if (hyper_ && parts.mixes())
      hyper_->write();
    if (parts.mlp && !layer.block) {
      if (hyper_)
        hyper_->read(*layer.hyper_mlp);
      if (!config.parallel)
        step_.normalise(normed, residual, layer.post_norm);
      if (hyper_)
        hyper_->clear();
      if (convolutions_)
        convolutions_->enter(i, branch_site::mlp);
      mlps_.add(i, normed);
      if (hyper_)
        hyper_->write();
    }
    if (layer.input_gate)
      inputs_.add(i, normed);
    if (layer.scale != 1)
      step_.backend.scale(residual, layer.scale);
    if (hook && hyper_)
      hyper_->show(hook, i + 1);
    else if (hook)
      hook(i + 1, residual);
  }
  if (hyper_ && part.heads)
    hyper_->merge();
  if (blocks_ && !part.heads)
    blocks_->end();
  if (states_)
    states_->end();
}

void decoder::conclude(std::span<const std::int32_t> logit_rows, const tensor& logits,
                       std::span<const std::int32_t> hidden_rows, const tensor& hidden) {
  const auto& config = step_.config();
  const auto is_row = [this](std::int32_t r) { return r >= 0 && as_size(r) < step_.rows(); };
  require_in_decoder(config.part().heads || (logit_rows.empty() && hidden_rows.empty()),
                     "logits of layers without a head");
  require_in_decoder(logit_rows.size() <= as_size(step_.max_rows()) && std::ranges::all_of(logit_rows, is_row),
                     "logits of rows that are not there");
  require_in_decoder(logit_rows.empty() ||
                       (logits.data && logits.type == dtype::f32 && logits.rows == logit_rows.size() &&
                        logits.cols == as_size(config.vocab) && logits.stride >= logits.cols),
                     "a tensor for logits of another shape");
  require_in_decoder(hidden_rows.empty() ||
                       (hidden.data && hidden.type == dtype::f32 && hidden.rows == hidden_rows.size() &&
                        hidden.cols == as_size(config.hidden) && std::ranges::all_of(hidden_rows, is_row)),
                     "hidden states of other rows, or of another shape");
  if (!hidden_rows.empty())
    step_.normalise(hidden, step_.residual(), step_.weights->final_norm, hidden_rows.data());
  if (logit_rows.empty())
    return;
  const auto last = step_.normed(logit_rows.size());
  step_.normalise(last, step_.residual(), step_.weights->final_norm, logit_rows.data());
  project(logits, last);
}

void decoder::project(const tensor& logits, const tensor& states) {
  const auto& config = step_.config();
  require_in_decoder(step_.weights->head != nullptr, "logits of a model without a head");
  step_.enter_head();
  step_.backend.linear(logits, states, *step_.weights->head, float_data(step_.weights->head_bias));
  if (config.logit_scale != 1 || config.logit_cap != 0)
    step_.backend.scale(logits, config.logit_scale, config.logit_cap);
}

void decoder::receive(const tensor& rows) {
  require_in_decoder(rows.type == dtype::f32 && rows.cols == as_size(step_.config().residual_width()),
                     "rows of another shape");
  const auto to = receive(rows.rows);
  if (rows.rows > 0)
    step_.backend.gather_rows(to, rows);
}

tensor decoder::receive(std::size_t rows) {
  step_.begin(rows);
  return hyper_ ? hyper_->streams() : blocks_ ? blocks_->passed() : step_.residual();
}

void decoder::check(const kernels::batch& who, const kernels::kv_cache& cache) const {
  const auto& config = step_.config();
  const auto rows = static_cast<std::int64_t>(step_.rows());
  const auto expected = kv_shape_of(config, step_.weights->compute, 0);
  require_in_decoder(cache.shape.layers == expected.layers && cache.shape.kv_heads == expected.kv_heads &&
                       cache.shape.head_dim == expected.head_dim && cache.shape.own == expected.own,
                     "a KV cache of another model");
  std::int64_t covered = 0;
  for (const auto& s : who.sequences) {
    require_in_decoder(s.rows > 0 && s.first_row == covered, "sequences that do not cover the rows in order");
    covered += s.rows;
    const auto end = std::int64_t{s.first_position} + s.rows;
    require_in_decoder(s.first_position >= 0 && end <= step_.max_context(), "a position beyond the context");
    require_in_decoder(!config.encoder || (s.first_position == 0 && s.length == s.rows),
                       "a part of a text that is encoded whole");
    const auto blocks = blocks_for(end);
    require_in_decoder(s.first_block >= 0 &&
                         s.first_block + blocks <= static_cast<std::int64_t>(who.block_tables.size()),
                       "a block table that does not cover its sequence");
    require_in_decoder(
      std::ranges::all_of(who.block_tables.subspan(as_size(s.first_block), static_cast<std::size_t>(blocks)),
                          [&](std::int32_t b) { return b >= 0 && static_cast<std::size_t>(b) < cache.shape.blocks; }),
      "a block outside the KV cache");
  }
  require_in_decoder(covered == rows, "sequences that do not cover the rows in order");
}

} // namespace troupe
