#include "runtime/model/decoder.hpp"

#include "runtime/model/rope.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

/// The first `rows` rows of a buffer of rows without gaps.
tensor view(const kernels::buffer& memory, dtype type, std::size_t rows, std::size_t cols) {
  return {memory.get(), type, rows, cols, cols};
}

const float* floats(const kernels::buffer& vector) { return static_cast<const float*>(vector.get()); }

void require(bool condition, const char* what) {
  if (!condition)
    throw failure(errc::internal, std::string("decoder: ") + what);
}

} // namespace

activation_sizes activation_bytes(const model_config& config, dtype compute, int max_rows, int max_context) {
  const auto rows = as_size(max_rows), hidden = as_size(config.hidden), element = size_of(compute);
  const auto q = as_size(config.heads) * as_size(config.head_dim),
             kv = as_size(config.kv_heads) * as_size(config.head_dim);
  activation_sizes bytes;
  bytes.rope = as_size(max_context) * as_size(config.head_dim) * sizeof(float);
  bytes.residual = rows * hidden * sizeof(float);
  bytes.normed = rows * hidden * element;
  bytes.qkv = rows * (q + 2 * kv) * sizeof(float);
  bytes.attended = rows * q * element;
  bytes.ffn = rows * as_size(config.ffn) * element;
  return bytes;
}

decoder::decoder(std::shared_ptr<const model_weights> weights, kernels::backend& backend, int max_rows, int max_context)
  : weights_(std::move(weights)), backend_(backend), max_rows_(max_rows), max_context_(max_context) {
  require(max_rows > 0 && max_context > 0, "needs at least one row and one position");
  const auto& config = weights_->config;
  const auto bytes = activation_bytes(config, weights_->compute, max_rows, max_context);
  rope_ = backend.upload(rope_table(config.rope, config.head_dim, max_context));
  residual_ = backend.allocate(bytes.residual);
  normed_ = backend.allocate(bytes.normed);
  qkv_ = backend.allocate(bytes.qkv);
  attended_ = backend.allocate(bytes.attended);
  ffn_ = backend.allocate(bytes.ffn);
}

void decoder::forward(std::span<const token_id> tokens, const kernels::batch& who,
                      std::span<const std::int32_t> logit_rows, kernels::kv_cache& cache, const tensor& logits) {
  check(tokens, who, logit_rows, cache, logits);
  if (tokens.empty())
    return;
  const auto& config = weights_->config;
  const auto compute = weights_->compute;
  const auto rows = tokens.size();
  const auto hidden = as_size(config.hidden), q = as_size(config.heads) * as_size(config.head_dim),
             kv = as_size(config.kv_heads) * as_size(config.head_dim);
  const auto residual = view(residual_, dtype::f32, rows, hidden);
  const auto normed = view(normed_, compute, rows, hidden);
  const auto qkv = view(qkv_, dtype::f32, rows, q + 2 * kv);
  const auto attended = view(attended_, compute, rows, q);
  const auto ffn = view(ffn_, compute, rows, as_size(config.ffn));
  const auto scale = 1 / std::sqrt(static_cast<float>(config.head_dim));

  backend_.embed(residual, *weights_->embedding, tokens.data());
  for (int i = 0; i < config.layers; ++i) {
    const auto& layer = weights_->layers[as_size(i)];
    const kernels::head_norm norm{floats(layer.q_norm), floats(layer.k_norm), config.norm_eps};
    backend_.rms_norm(normed, residual, floats(layer.input_norm), config.norm_eps);
    backend_.linear(qkv, normed, *layer.qkv, floats(layer.qkv_bias));
    backend_.rope_write_kv(qkv, config.heads, norm, floats(rope_), cache, i, who);
    backend_.attention(attended, qkv, config.heads, scale, config.windows[as_size(i)], cache, i, who);
    backend_.linear(residual, attended, *layer.o, floats(layer.o_bias), kernels::store::add);

    backend_.rms_norm(normed, residual, floats(layer.post_norm), config.norm_eps);
    backend_.linear_silu_gate(ffn, normed, *layer.gate_up, floats(layer.gate_up_bias));
    backend_.linear(residual, ffn, *layer.down, floats(layer.down_bias), kernels::store::add);
  }
  if (logit_rows.empty())
    return;
  const auto last = view(normed_, compute, logit_rows.size(), hidden);
  backend_.rms_norm(last, residual, floats(weights_->final_norm), config.norm_eps, logit_rows.data());
  backend_.linear(logits, last, *weights_->head);
}

void decoder::check(std::span<const token_id> tokens, const kernels::batch& who,
                    std::span<const std::int32_t> logit_rows, const kernels::kv_cache& cache,
                    const tensor& logits) const {
  const auto& config = weights_->config;
  const auto rows = static_cast<std::int64_t>(tokens.size());
  require(rows <= max_rows_, "more rows than it was made for");
  require(std::ranges::all_of(tokens, [&](token_id t) { return t >= 0 && t < config.vocab; }),
          "a token outside the vocabulary");
  require(cache.shape.layers == config.layers && cache.shape.kv_heads == config.kv_heads &&
            cache.shape.head_dim == config.head_dim,
          "a KV cache of another model");
  std::int64_t covered = 0;
  for (const auto& s : who.sequences) {
    require(s.rows > 0 && s.first_row == covered, "sequences that do not cover the rows in order");
    covered += s.rows;
    const auto end = std::int64_t{s.first_position} + s.rows;
    require(s.first_position >= 0 && end <= max_context_, "a position beyond the context");
    const auto blocks = (end + kernels::block_tokens - 1) / kernels::block_tokens;
    require(s.first_block >= 0 && s.first_block + blocks <= static_cast<std::int64_t>(who.block_tables.size()),
            "a block table that does not cover its sequence");
    require(
      std::ranges::all_of(who.block_tables.subspan(as_size(s.first_block), static_cast<std::size_t>(blocks)),
                          [&](std::int32_t b) { return b >= 0 && static_cast<std::size_t>(b) < cache.shape.blocks; }),
      "a block outside the KV cache");
  }
  require(covered == rows, "sequences that do not cover the rows in order");
  require(logit_rows.size() <= as_size(max_rows_) &&
            std::ranges::all_of(logit_rows, [&](std::int32_t r) { return r >= 0 && r < rows; }),
          "logits of rows that are not there");
  require(logit_rows.empty() ||
            (logits.data && logits.type == dtype::f32 && logits.rows == logit_rows.size() &&
             logits.cols == as_size(config.vocab) && logits.stride >= logits.cols),
          "a tensor for logits of another shape");
}

} // namespace troupe
