#include "runtime/model/decoder/decoder.hpp"

#include "kernels/gaussian_gates.hpp"
#include "kernels/low_rank.hpp"
#include "runtime/model/decoder/decoder_tensors.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/kv_blocks.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

} // namespace

decoder::decoder(std::shared_ptr<const model_weights> weights, kernels::backend& backend, int max_rows, int max_context)
  : weights_(std::move(weights)),
    backend_(backend),
    walk_(walk_through(*weights_, backend)),
    max_rows_(max_rows),
    max_context_(max_context) {
  require_in_decoder(max_rows > 0 && max_context > 0, "needs at least one row and one position");
  const auto& config = weights_->config;
  const auto bytes = activation_bytes(config, weights_->compute, max_rows, max_context);
  const auto rotation_of = [&](const rope_config& rope, int dim) {
    rotation made{backend.upload(rope_table(rope, dim, max_context)), nullptr, rope_border(rope, max_context)};
    if (made.border > 0)
      made.longer = backend.upload(rope_table(rope, dim, max_context, max_context));
    return made;
  };
  if (config.positions == position_type::rotary)
    rope_ = rotation_of(config.rope, config.head_dim);
  if (config.local_rope)
    local_rope_ = rotation_of(*config.local_rope, config.local_head_dim > 0 ? config.local_head_dim : config.head_dim);
  if (config.positions != position_type::rotary || !config.unrotated.empty())
    unrotated_.rows = backend.upload(unrotated_table(config.head_dim, max_context));
  if (config.positions == position_type::learned)
    require_in_decoder(as_size(max_context) + config.position_offset <= config.position_rows,
                       "more positions than learned ones");
  if (config.positions == position_type::alibi) {
    auto slopes = alibi_slopes(config.heads);
    for (float& slope : slopes)
      slope *= config.alibi_scale;
    slopes_ = backend.upload(slopes);
  }
  const auto allocate = [&](std::size_t size) { return size == 0 ? nullptr : backend.allocate(size); };
  residual_ = allocate(bytes.residual);
  normed_ = allocate(bytes.normed);
  qkv_ = allocate(bytes.qkv);
  attended_ = allocate(bytes.attended);
  ffn_ = allocate(bytes.ffn);
  branch_ = allocate(bytes.branch);
  router_ = allocate(bytes.router);
  weighed_ = allocate(bytes.weighed);
  inputs_ = allocate(bytes.inputs);
  if (bytes.ones > 0)
    ones_ = backend.upload(std::vector<float>(as_size(config.head_dim), 1.0f));
  latent_down_ = allocate(bytes.latent_down);
  latent_queries_ = allocate(bytes.latent_queries);
  latents_ = allocate(bytes.latents);
  latent_inputs_ = allocate(bytes.latent_inputs);
  spread_ = allocate(bytes.spread);
  index_ = allocate(bytes.index);
  index_weights_ = allocate(bytes.index_weights);
  if (config.indexer) {
    sparse_ = &dynamic_cast<kernels::sparse_attention&>(backend);
    index_rope_ = rotation_of(config.rope, config.indexer.dim);
    chosen_.reset(as_size(max_rows), config.indexer.top);
  }
  streams_ = allocate(bytes.streams);
  predictions_ = allocate(bytes.streams);
  routed_ = allocate(bytes.routed);
  laurel_ = allocate(bytes.laurel);
  laurel_down_ = allocate(bytes.laurel_down);
  laurel_low_ = allocate(bytes.laurel_low);
  gates_ = allocate(bytes.gates);
  if (config.altup || bytes.gates > 0)
    gaussian_ = &dynamic_cast<kernels::gaussian_gates&>(backend);
  recurrent_in_ = allocate(bytes.recurrent_in);
  convolved_ = allocate(bytes.convolved);
  recurred_ = allocate(bytes.recurred);
  recurrent_rates_ = allocate(bytes.recurrent_rates);
  recurrent_low_ = allocate(bytes.recurrent_low);
  if (config.recurrent || config.attention_gate)
    recurrence_ = &dynamic_cast<kernels::recurrent_ops&>(backend);
  low_rank_ = dynamic_cast<kernels::low_rank_products*>(&backend);
}

void decoder::forward(std::span<const token_id> tokens, const kernels::batch& who,
                      std::span<const std::int32_t> logit_rows, kernels::kv_cache& cache, const tensor& logits,
                      std::span<const std::int32_t> hidden_rows, const tensor& hidden, const layer_hook& hook,
                      added_products* added) {
  embed(tokens, who);
  run(who, cache, hook, added);
  conclude(logit_rows, logits, hidden_rows, hidden);
}

void decoder::begin(std::size_t rows) {
  require_in_decoder(rows <= as_size(max_rows_), "more rows than it was made for");
  rows_ = rows;
}

tensor decoder::residual() const { return buffer_rows(residual_, dtype::f32, rows_, as_size(weights_->config.hidden)); }

void decoder::run(const kernels::batch& who, kernels::kv_cache& cache, const layer_hook& hook, added_products* added) {
  require_in_decoder(!added || low_rank_, "products that the backend cannot add to");
  added_ = added;
  check(who, cache);
  if (rows_ == 0)
    return;
  const auto& config = weights_->config;
  if (config.altup)
    return run_streams(who, cache, hook);
  const auto residual = this->residual();
  const auto normed = buffer_rows(normed_, weights_->compute, rows_, residual.cols);
  growth_.clear();
  if (config.growth)
    for (const auto& s : who.sequences)
      for (std::int32_t r = 0; r < s.rows; ++r)
        growth_.push_back(config.growth.rate *
                          std::log1p(std::floor(static_cast<float>(s.first_position + r + config.growth.first) /
                                                static_cast<float>(config.growth.period))));
  auto* const states = begin_states(who);
  const auto part = config.part();
  if (hook && part.embeds)
    hook(0, residual);
  for (int i = part.first; i < part.end; ++i) {
    const auto& layer = weights_->layer(i);
    const auto parts = config.parts_of(i);
    walk_.enter(as_size(i - part.first));
    if (config.experts.early && config.is_sparse(i)) {
      backend_.gather_rows(normed, residual);
      score_experts(normed, *layer.mixture);
    }
    if (parts.mixes())
      normalise(normed, residual, layer.input_norm);
    if (parts.recurrence)
      add_recurrence(i, residual, normed, *states);
    if (parts.attention)
      add_attention(i, residual, normed, cache, who);
    if (parts.mlp) {
      if (!config.parallel)
        normalise(normed, residual, layer.post_norm);
      add_mlp(i, residual, normed);
    }
    if (layer.input_gate)
      add_layer_input(i, residual, normed);
    if (layer.scale != 1)
      backend_.scale(residual, layer.scale);
    if (hook)
      hook(i + 1, residual);
  }
  if (states != nullptr && !(who.recurrent != nullptr && who.recurrent->begun))
    states->end();
}

void decoder::conclude(std::span<const std::int32_t> logit_rows, const tensor& logits,
                       std::span<const std::int32_t> hidden_rows, const tensor& hidden) {
  const auto& config = weights_->config;
  const auto is_row = [this](std::int32_t r) { return r >= 0 && as_size(r) < rows_; };
  require_in_decoder(config.part().heads || (logit_rows.empty() && hidden_rows.empty()),
                     "logits of layers without a head");
  require_in_decoder(logit_rows.size() <= as_size(max_rows_) && std::ranges::all_of(logit_rows, is_row),
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
    normalise(hidden, residual(), weights_->final_norm, hidden_rows.data());
  if (logit_rows.empty())
    return;
  const auto last = buffer_rows(normed_, weights_->compute, logit_rows.size(), as_size(config.hidden));
  normalise(last, residual(), weights_->final_norm, logit_rows.data());
  project(logits, last);
}

void decoder::project(const tensor& logits, const tensor& states) {
  const auto& config = weights_->config;
  require_in_decoder(weights_->head != nullptr, "logits of a model without a head");
  enter_head();
  backend_.linear(logits, states, *weights_->head, float_data(weights_->head_bias));
  if (config.logit_scale != 1 || config.logit_cap != 0)
    backend_.scale(logits, config.logit_scale, config.logit_cap);
}

void decoder::enter_head() { walk_.enter(weights_->layers.size()); }

void decoder::normalise(const tensor& to, const tensor& from, const norm_weights& norm, const std::int32_t* rows,
                        float eps) {
  const auto& config = weights_->config;
  eps = eps > 0 ? eps : config.norm_eps;
  if (!norm.weight)
    backend_.gather_rows(to, from, rows);
  else if (config.norm == norm_type::layer)
    backend_.layer_norm(to, from, float_data(norm.weight), float_data(norm.bias), eps, rows);
  else
    backend_.rms_norm(to, from, float_data(norm.weight), eps, rows);
}

void decoder::multiply(int i, product_site site, const tensor& out, const tensor& in, const kernels::matrix& w,
                       const kernels::buffer& bias, kernels::store how) {
  if (const auto added = added_at(i, site); added.empty())
    backend_.linear(out, in, w, float_data(bias), how);
  else
    low_rank_->linear_plus(out, in, w, float_data(bias), how, added);
}

void decoder::add_branch(int i, product_site site, const tensor& residual, const tensor& in, const kernels::matrix& w,
                         const kernels::buffer& bias, const norm_weights& norm, float scale) {
  const bool of_sum = weights_->config.norms == norm_place::sum;
  if ((!norm.weight || of_sum) && weights_->config.residual_scale * scale == 1) {
    multiply(i, site, residual, in, w, bias, kernels::store::add);
    if (of_sum)
      normalise(residual, residual, norm);
    return;
  }
  const auto branch = buffer_rows(branch_, dtype::f32, residual.rows, residual.cols);
  multiply(i, site, branch, in, w, bias, kernels::store::set);
  add_changed(residual, branch, norm, scale);
}

void decoder::add_changed(const tensor& residual, const tensor& branch, const norm_weights& norm, float scale) {
  if (norm.weight)
    normalise(branch, branch, norm, nullptr, weights_->config.after_eps);
  backend_.add_rows(residual, branch, weights_->config.residual_scale * scale);
}

void decoder::check(const kernels::batch& who, const kernels::kv_cache& cache) const {
  const auto& config = weights_->config;
  const auto rows = static_cast<std::int64_t>(rows_);
  const auto expected = kv_shape_of(config, weights_->compute, 0);
  require_in_decoder(cache.shape.layers == expected.layers && cache.shape.kv_heads == expected.kv_heads &&
                       cache.shape.head_dim == expected.head_dim && cache.shape.own == expected.own,
                     "a KV cache of another model");
  std::int64_t covered = 0;
  for (const auto& s : who.sequences) {
    require_in_decoder(s.rows > 0 && s.first_row == covered, "sequences that do not cover the rows in order");
    covered += s.rows;
    const auto end = std::int64_t{s.first_position} + s.rows;
    require_in_decoder(s.first_position >= 0 && end <= max_context_, "a position beyond the context");
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
