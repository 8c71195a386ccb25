#include "runtime/model/decoder.hpp"

#include "kernels/activation_sparsity.hpp"
#include "kernels/gaussian_gates.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/kv_blocks.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

/// The first `rows` rows of a buffer of rows without gaps.
tensor view(const kernels::buffer& memory, dtype type, std::size_t rows, std::size_t cols) {
  return {memory.get(), type, rows, cols, cols};
}

/// Some neighbouring columns of f32 or bf16.
tensor columns(const tensor& of, std::size_t first, std::size_t count) {
  return {static_cast<char*>(of.data) + first * size_of(of.type), of.type, of.rows, count, of.stride};
}

/// The epsilon of the latents' norms, which no configuration changes.
constexpr float latent_eps = 1e-6f;

const float* floats(const kernels::buffer& vector) { return static_cast<const float*>(vector.get()); }

/// The row of the table of learned positions for each row of a step.
std::vector<std::int32_t> position_rows(const kernels::batch& who, std::size_t offset) {
  std::vector<std::int32_t> rows;
  for (const auto& s : who.sequences)
    for (std::int32_t i = 0; i < s.rows; ++i)
      rows.push_back(s.first_position + i + static_cast<std::int32_t>(offset));
  return rows;
}

/// The row of the table of token types for each row of a step. Tokenizers may tell second texts where models do not.
std::vector<std::int32_t> token_types(const kernels::batch& who, int known) {
  std::vector<std::int32_t> types;
  for (const auto& s : who.sequences)
    for (std::int32_t i = 0; i < s.rows; ++i)
      types.push_back(known > 1 && s.second > 0 && s.first_position + i >= s.second ? 1 : 0);
  return types;
}

void require(bool condition, const char* what) {
  if (!condition)
    throw failure(errc::internal, std::string("decoder: ") + what);
}

} // namespace

bool needs_family_ops(const model_config& config) {
  return config.norm != norm_type::rms || config.norms != norm_place::before || config.qk_norm_whole ||
    config.positions != position_type::rotary || config.attention_cap != 0 || config.attention_sinks || !config.gated ||
    config.latent || config.act.type != kernels::activation_type::silu || config.embedding_scale != 1 ||
    config.residual_scale != 1 || config.logit_scale != 1 || config.logit_cap != 0 || config.experts.count > 0 ||
    !config.chunks.empty() || config.growth || config.encoder || config.qk_norm_behind || config.qk_norm_plain ||
    config.value_norm || config.local_head_dim > 0 || config.local_kv_heads > 0 || config.full_kv_heads > 0 ||
    !config.kv_layers.empty() || config.layer_inputs > 0 || config.layer_scales || config.embedding_norm ||
    config.token_types > 0 || config.skips_first_norm || config.recurrent || config.attention_gate || config.altup;
}

bool host_takes_part(const model_config& config) {
  return config.experts.count > 0 || config.growth || config.positions == position_type::learned ||
    config.token_types > 0 || config.altup;
}

namespace {

/// Whether what attention and MLP give is changed before it is added to the residual.
bool changes_branches(const model_config& config) {
  return config.norms == norm_place::after || config.norms == norm_place::both || config.residual_scale != 1 ||
    config.experts.count > 0 || config.layer_inputs > 0 || config.recurrent.out_scale != 1 ||
    config.recurrent.attention_scale != 1;
}

std::size_t rope_tables(const model_config& config, int max_context) {
  if (config.positions != position_type::rotary)
    return 1;
  const auto tables = [&](const rope_config& rope) { return rope_border(rope, max_context) > 0 ? 2 : 1; };
  return as_size(tables(config.rope) + (config.local_rope ? tables(*config.local_rope) : 0) +
                 (config.unrotated.empty() ? 0 : 1));
}

} // namespace

activation_sizes activation_bytes(const model_config& config, dtype compute, int max_rows, int max_context) {
  const auto rows = as_size(max_rows), hidden = as_size(config.hidden), element = size_of(compute);
  std::size_t q = 0, kv = 0, dense = 0;
  for (int i = 0; i < config.layers; ++i) {
    q = std::max(q, as_size(config.heads) * as_size(config.head_dim_of(i)));
    kv = std::max(kv, as_size(config.kv_heads_of(i)) * as_size(config.head_dim_of(i)));
    dense = std::max(dense, as_size(config.ffn_of(i)));
  }
  const auto& experts = config.experts;
  const auto ffn = std::max(
    {dense, as_size(config.layer_inputs), as_size(experts.chosen) * as_size(experts.ffn), as_size(experts.shared_ffn)});
  activation_sizes bytes;
  bytes.rope = rope_tables(config, max_context) * as_size(max_context) * as_size(config.head_dim) * sizeof(float);
  bytes.residual = rows * hidden * sizeof(float);
  bytes.normed = rows * hidden * element;
  bytes.qkv = rows * (q + 2 * kv + (config.attention_gate ? q : 0)) * sizeof(float);
  bytes.attended = rows * q * element;
  bytes.ffn = rows * ffn * element;
  if (changes_branches(config))
    bytes.branch = rows * hidden * sizeof(float);
  bytes.router = rows * as_size(experts.count) * sizeof(float);
  if (experts.weigh_inputs)
    bytes.weighed = rows * hidden * (sizeof(float) + as_size(experts.chosen) * (sizeof(float) + element));
  if (experts.apart)
    bytes.weighed = rows * hidden * sizeof(float);
  if (const auto width = as_size(config.layer_inputs); width > 0)
    bytes.inputs = rows * 2 * as_size(config.layers) * width * sizeof(float);
  if (config.qk_norm_plain || config.value_norm)
    bytes.ones = as_size(config.head_dim) * sizeof(float);
  if (config.latent) {
    const auto& latent = config.latent;
    const auto heads = as_size(config.heads), rank = as_size(latent.kv_rank),
               query = as_size(latent.plain + latent.rotated), value = as_size(latent.value),
               q_rank = as_size(latent.q_rank);
    bytes.latent_down = rows * ((q_rank > 0 ? q_rank : heads * query) + rank + as_size(latent.rotated)) * sizeof(float);
    bytes.latent_queries = rows * (heads + 2) * query * sizeof(float);
    bytes.latents = rows * std::max((heads + 2) * rank, heads * value) * sizeof(float);
    bytes.latent_inputs = rows * std::max({q_rank, heads * query, heads * rank}) * element;
    bytes.attended = rows * std::max(q, heads * value) * element;
  }
  if (config.altup) {
    const auto rank = as_size(config.altup.laurel);
    bytes.streams = as_size(config.altup.streams) * rows * hidden * sizeof(float);
    bytes.routed = rows * as_size(config.altup.streams) * sizeof(float);
    bytes.laurel = rows * hidden * sizeof(float);
    bytes.laurel_down = rows * rank * sizeof(float);
    bytes.laurel_low = rows * rank * element;
  }
  for (int i = 0; i < config.layers; ++i)
    if (config.cuts_gates(i))
      bytes.gates = std::max(bytes.gates, rows * 2 * as_size(config.ffn_of(i)) * sizeof(float));
  if (config.recurrent) {
    const auto& r = config.recurrent;
    std::size_t in = 0;
    for (const auto& w : recurrent_tensors(config, 0).in())
      in += w.shape[0];
    bytes.recurrent_in = rows * in * sizeof(float);
    bytes.convolved = rows * as_size(recurrent_channels(config)) * sizeof(float);
    bytes.recurred = rows * as_size(r.inner()) * sizeof(float);
    if (r.rank > 0) {
      bytes.recurrent_rates = rows * as_size(r.heads * r.key_dim + r.inner()) * sizeof(float);
      bytes.recurrent_low = rows * as_size(r.rank) * element;
    }
    bytes.attended = std::max(bytes.attended, rows * as_size(recurrent_inner(config)) * element);
  }
  return bytes;
}

decoder::decoder(std::shared_ptr<const model_weights> weights, kernels::backend& backend, int max_rows, int max_context)
  : weights_(std::move(weights)),
    backend_(backend),
    walk_(walk_through(*weights_, backend)),
    max_rows_(max_rows),
    max_context_(max_context) {
  require(max_rows > 0 && max_context > 0, "needs at least one row and one position");
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
    require(as_size(max_context) + config.position_offset <= config.position_rows, "more positions than learned ones");
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
}

void decoder::forward(std::span<const token_id> tokens, const kernels::batch& who,
                      std::span<const std::int32_t> logit_rows, kernels::kv_cache& cache, const tensor& logits,
                      std::span<const std::int32_t> hidden_rows, const tensor& hidden, const layer_hook& hook,
                      adapter_products* adapters) {
  embed(tokens, who);
  run(who, cache, hook, adapters);
  conclude(logit_rows, logits, hidden_rows, hidden);
}

void decoder::begin(std::size_t rows) {
  require(rows <= as_size(max_rows_), "more rows than it was made for");
  rows_ = rows;
}

tensor decoder::residual() const { return view(residual_, dtype::f32, rows_, as_size(weights_->config.hidden)); }

void decoder::embed(std::span<const token_id> tokens, const kernels::batch& who) {
  const auto& config = weights_->config;
  require(config.part().embeds, "tokens for layers that do not begin with them");
  require(std::ranges::all_of(tokens, [&](token_id t) { return t >= 0 && t < config.vocab; }),
          "a token outside the vocabulary");
  begin(tokens.size());
  if (tokens.empty())
    return;
  if (weights_->head_gives_embedding)
    enter_head();
  backend_.embed(residual(), *weights_->embedding, tokens.data());
  if (config.embedding_scale != 1)
    backend_.scale(residual(), config.embedding_scale);
  if (weights_->positions)
    backend_.embed_add(residual(), *weights_->positions, position_rows(who, config.position_offset).data());
  if (weights_->token_types)
    backend_.embed_add(residual(), *weights_->token_types, token_types(who, config.token_types).data());
  if (weights_->embedding_norm.weight)
    normalise(residual(), residual(), weights_->embedding_norm);
  if (weights_->layer_inputs)
    make_layer_inputs(tokens);
}

void decoder::make_layer_inputs(std::span<const token_id> tokens) {
  const auto& config = weights_->config;
  const auto width = as_size(config.layer_inputs), all = as_size(config.layers) * width;
  const auto normed = view(normed_, weights_->compute, rows_, as_size(config.hidden)),
             inputs = view(inputs_, dtype::f32, rows_, all);
  const tensor known{static_cast<float*>(inputs_.get()) + as_size(max_rows_) * all, dtype::f32, rows_, all, all};
  backend_.gather_rows(normed, residual());
  walk_.enter(0);
  backend_.linear(inputs, normed, *weights_->layer_projection);
  backend_.scale(inputs, 1 / std::sqrt(static_cast<float>(config.hidden)));
  for (std::size_t i = 0; i < as_size(config.layers); ++i)
    normalise(columns(inputs, i * width, width), columns(inputs, i * width, width), weights_->layer_projection_norm);
  std::vector<token_id> in_table(tokens.begin(), tokens.end());
  if (config.layer_input_rows > 0) // tokens beyond have the first one's
    for (token_id& token : in_table)
      token = token < config.layer_input_rows ? token : 0;
  backend_.embed(known, *weights_->layer_inputs, in_table.data());
  backend_.add_rows(inputs, known, std::sqrt(static_cast<float>(width)));
  backend_.scale(inputs, 1 / std::sqrt(2.0f));
}

void decoder::receive(const tensor& rows) {
  require(rows.type == dtype::f32 && rows.cols == as_size(weights_->config.hidden), "rows of another shape");
  const auto to = receive(rows.rows);
  if (rows.rows > 0)
    backend_.gather_rows(to, rows);
}

tensor decoder::receive(std::size_t rows) {
  begin(rows);
  return residual();
}

void decoder::run(const kernels::batch& who, kernels::kv_cache& cache, const layer_hook& hook,
                  adapter_products* adapters) {
  adapters_ = adapters;
  check(who, cache);
  if (rows_ == 0)
    return;
  const auto& config = weights_->config;
  if (config.altup)
    return run_streams(who, cache, hook);
  const auto residual = this->residual();
  const auto normed = view(normed_, weights_->compute, rows_, residual.cols);
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

void decoder::add_attention(int i, const tensor& residual, const tensor& normed, kernels::kv_cache& cache,
                            const kernels::batch& who) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  const int width = config.latent ? config.latent.value : config.head_dim_of(i);
  const auto attended = view(attended_, weights_->compute, rows_, as_size(config.heads) * as_size(width));
  attend(i, normed, attended, cache, who);
  if (config.parallel && !config.shared_norm)
    normalise(normed, residual, layer.post_norm);
  add_branch(i, adapter_site::o, residual, attended, *layer.o, layer.o_bias, layer.attention_norm,
             config.recurrent.attention_scale);
}

void decoder::conclude(std::span<const std::int32_t> logit_rows, const tensor& logits,
                       std::span<const std::int32_t> hidden_rows, const tensor& hidden) {
  const auto& config = weights_->config;
  const auto is_row = [this](std::int32_t r) { return r >= 0 && as_size(r) < rows_; };
  require(config.part().heads || (logit_rows.empty() && hidden_rows.empty()), "logits of layers without a head");
  require(logit_rows.size() <= as_size(max_rows_) && std::ranges::all_of(logit_rows, is_row),
          "logits of rows that are not there");
  require(logit_rows.empty() ||
            (logits.data && logits.type == dtype::f32 && logits.rows == logit_rows.size() &&
             logits.cols == as_size(config.vocab) && logits.stride >= logits.cols),
          "a tensor for logits of another shape");
  require(hidden_rows.empty() ||
            (hidden.data && hidden.type == dtype::f32 && hidden.rows == hidden_rows.size() &&
             hidden.cols == as_size(config.hidden) && std::ranges::all_of(hidden_rows, is_row)),
          "hidden states of other rows, or of another shape");
  if (!hidden_rows.empty())
    normalise(hidden, residual(), weights_->final_norm, hidden_rows.data());
  if (logit_rows.empty())
    return;
  const auto last = view(normed_, weights_->compute, logit_rows.size(), as_size(config.hidden));
  normalise(last, residual(), weights_->final_norm, logit_rows.data());
  project(logits, last);
}

void decoder::project(const tensor& logits, const tensor& states) {
  const auto& config = weights_->config;
  require(weights_->head != nullptr, "logits of a model without a head");
  enter_head();
  backend_.linear(logits, states, *weights_->head, floats(weights_->head_bias));
  if (config.logit_scale != 1 || config.logit_cap != 0)
    backend_.scale(logits, config.logit_scale, config.logit_cap);
}

void decoder::enter_head() { walk_.enter(weights_->layers.size()); }

void decoder::normalise(const tensor& to, const tensor& from, const norm_weights& norm, const std::int32_t* rows) {
  const auto& config = weights_->config;
  if (!norm.weight)
    backend_.gather_rows(to, from, rows);
  else if (config.norm == norm_type::layer)
    backend_.layer_norm(to, from, floats(norm.weight), floats(norm.bias), config.norm_eps, rows);
  else
    backend_.rms_norm(to, from, floats(norm.weight), config.norm_eps, rows);
}

void decoder::attend(int i, const tensor& normed, const tensor& attended, kernels::kv_cache& cache,
                     const kernels::batch& who) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  if (config.latent)
    return attend_latent(i, normed, attended, cache, who);
  const auto dim = as_size(config.head_dim_of(i)), q = as_size(config.heads) * dim,
             kv = config.has_kv(i) ? as_size(config.kv_heads_of(i)) * dim : 0;
  const auto all = view(qkv_, dtype::f32, normed.rows, q + 2 * kv + (config.attention_gate ? q : 0));
  const auto qkv = columns(all, 0, q + 2 * kv);
  const int window = config.windows[as_size(i)], cached = config.cache_layer_of(i);
  multiply(i, adapter_site::qkv, all, normed, *layer.qkv, layer.qkv_bias, kernels::store::set);
  normalise_heads(i, qkv);
  grow_queries(i, columns(qkv, 0, q));
  kernels::head_norm norm;
  if (config.qk_normed(i) && !config.qk_norm_whole) {
    const bool plain = config.qk_norm_plain;
    norm = {plain ? floats(ones_) : floats(layer.q_norm), plain ? floats(ones_) : floats(layer.k_norm), config.norm_eps,
            config.qk_norm_behind};
  }
  const auto& rope = config.is_unrotated(i) ? unrotated_ : window > 0 && config.local_rope ? local_rope_ : rope_;
  backend_.rope_write_kv(qkv, config.heads, norm, rope.get(), cache, cached, who);
  kernels::attention_scores scores{config.attention_scale != 0 ? config.attention_scale
                                                               : 1 / std::sqrt(static_cast<float>(dim)),
                                   window, config.attention_cap, floats(slopes_), floats(layer.sinks)};
  scores.chunk = config.chunk_of(i);
  scores.threshold = weights_->attention_threshold;
  if (config.encoder)
    scores.ahead = window > 0 ? window - 1 : kernels::all_ahead;
  backend_.shaped_attention(attended, qkv, config.heads, scores, cache, cached, who);
  if (config.attention_gate)
    gate_attention(attended, columns(all, q + 2 * kv, q));
}

void decoder::normalise_heads(int i, const tensor& qkv) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  const auto dim = as_size(config.head_dim_of(i)), q = as_size(config.heads) * dim,
             kv = as_size(config.kv_heads_of(i)) * dim;
  if (config.qk_norm_whole && config.qk_normed(i)) {
    const auto one = [&](std::size_t first, std::size_t width, const kernels::buffer& weights) {
      const auto all = columns(qkv, first, width);
      if (!config.qk_norm_layer)
        return backend_.rms_norm(all, all, floats(weights), config.norm_eps);
      for (std::size_t at = 0; at < width; at += dim)
        backend_.layer_norm(columns(all, at, dim), columns(all, at, dim), floats(weights) + at, nullptr,
                            config.norm_eps);
    };
    one(0, q, layer.q_norm);
    one(q, kv, layer.k_norm);
  }
  if (!config.value_norm || !config.has_kv(i))
    return;
  for (std::size_t first = q + kv; first < q + 2 * kv; first += dim)
    backend_.rms_norm(columns(qkv, first, dim), columns(qkv, first, dim), floats(ones_), config.norm_eps);
}

void decoder::grow_queries(int i, const tensor& queries) {
  const auto& config = weights_->config;
  if (config.growth && (!config.growth.unrotated || config.is_unrotated(i)))
    backend_.add_rows(queries, queries, 1, nullptr, growth_.data());
}

void decoder::make_latents(const layer_weights& layer, const tensor& normed) {
  const auto& config = weights_->config;
  const auto& latent = config.latent;
  const auto compute = weights_->compute;
  const auto& w = *layer.latent;
  const auto rows = normed.rows, heads = as_size(config.heads), rank = as_size(latent.kv_rank),
             plain = as_size(latent.plain), rotated = as_size(latent.rotated), query = plain + rotated;
  const auto down = view(latent_down_, dtype::f32, rows, layer.qkv->outputs);
  const auto first = down.cols - rank - rotated; // the columns of the queries
  const auto slots = view(latent_queries_, dtype::f32, rows, (heads + 2) * query);
  const auto latents = view(latents_, dtype::f32, rows, (heads + 2) * rank);
  const auto inputs = view(latent_inputs_, compute, rows, heads * query);
  const auto queries = columns(slots, 0, heads * query);
  backend_.linear(down, normed, *layer.qkv);
  if (w.q) {
    const auto own = view(latent_inputs_, compute, rows, first);
    backend_.rms_norm(own, columns(down, 0, first), floats(w.q_norm), latent_eps);
    backend_.linear(queries, own, *w.q);
  } else {
    backend_.gather_rows(queries, columns(down, 0, first));
  }
  backend_.gather_rows(columns(slots, heads * query + plain, rotated), columns(down, first + rank, rotated));
  for (std::size_t slot = heads; slot < heads + 2; ++slot)
    backend_.rms_norm(columns(latents, slot * rank, rank), columns(down, first, rank), floats(w.kv_norm), latent_eps);
  backend_.gather_rows(inputs, queries);
  for (std::size_t h = 0; h < heads; ++h)
    backend_.linear(columns(latents, h * rank, rank), columns(inputs, h * query, plain), *w.key[h]);

  // Kernels rotate element i with i + head_dim / 2: both halves begin with one of the rotated dimensions' halves.
  const auto all = rows * (heads + 2), half = (rank + rotated) / 2;
  const auto to = view(qkv_, dtype::f32, all, rank + rotated), turned = view(latent_queries_, dtype::f32, all, query),
             still = view(latents_, dtype::f32, all, rank);
  for (std::size_t i = 0; i < 2; ++i) {
    backend_.gather_rows(columns(to, i * half, rotated / 2), columns(turned, plain + i * rotated / 2, rotated / 2));
    backend_.gather_rows(columns(to, i * half + rotated / 2, rank / 2), columns(still, i * rank / 2, rank / 2));
  }
}

void decoder::attend_latent(int i, const tensor& normed, const tensor& attended, kernels::kv_cache& cache,
                            const kernels::batch& who) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  const auto compute = weights_->compute;
  const auto rows = normed.rows, heads = as_size(config.heads), dim = as_size(config.head_dim),
             rank = as_size(config.latent.kv_rank), rotated = as_size(config.latent.rotated),
             value = as_size(config.latent.value);
  const auto qkv = view(qkv_, dtype::f32, rows, (heads + 2) * dim);
  make_latents(layer, normed);
  grow_queries(i, columns(qkv, 0, heads * dim));
  const auto& rope = config.is_unrotated(i) ? unrotated_ : rope_;
  const int own = config.cache_layer_of(i);
  backend_.rope_write_kv(qkv, config.heads, {}, rope.get(), cache, own, who);
  kernels::attention_scores scores{config.attention_scale, 0, 0, nullptr, nullptr};
  scores.threshold = weights_->attention_threshold;
  backend_.shaped_attention(view(attended_, compute, rows, heads * dim), qkv, config.heads, scores, cache, own, who);
  const auto seen = view(attended_, compute, rows * heads, dim),
             means = view(latent_inputs_, compute, rows * heads, rank);
  for (std::size_t h = 0; h < 2; ++h)
    backend_.gather_rows(columns(means, h * rank / 2, rank / 2), columns(seen, h * dim / 2 + rotated / 2, rank / 2));
  const auto inputs = view(latent_inputs_, compute, rows, heads * rank),
             values = view(latents_, dtype::f32, rows, heads * value);
  for (std::size_t h = 0; h < heads; ++h)
    backend_.linear(columns(values, h * value, value), columns(inputs, h * rank, rank), *layer.latent->value[h]);
  backend_.gather_rows(attended, values);
}

void decoder::multiply(int i, adapter_site site, const tensor& out, const tensor& in, const kernels::matrix& w,
                       const kernels::buffer& bias, kernels::store how) {
  if (adapters_)
    adapters_->linear(backend_, i, site, out, in, w, floats(bias), how);
  else
    backend_.linear(out, in, w, floats(bias), how);
}

void decoder::add_branch(int i, adapter_site site, const tensor& residual, const tensor& in, const kernels::matrix& w,
                         const kernels::buffer& bias, const norm_weights& norm, float scale) {
  const bool of_sum = weights_->config.norms == norm_place::sum;
  if ((!norm.weight || of_sum) && weights_->config.residual_scale * scale == 1) {
    multiply(i, site, residual, in, w, bias, kernels::store::add);
    if (of_sum)
      normalise(residual, residual, norm);
    return;
  }
  const auto branch = view(branch_, dtype::f32, residual.rows, residual.cols);
  multiply(i, site, branch, in, w, bias, kernels::store::set);
  add_changed(residual, branch, norm, scale);
}

void decoder::add_changed(const tensor& residual, const tensor& branch, const norm_weights& norm, float scale) {
  if (norm.weight)
    normalise(branch, branch, norm);
  backend_.add_rows(residual, branch, weights_->config.residual_scale * scale);
}

void decoder::add_mlp(int i, const tensor& residual, const tensor& normed) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  if (layer.mixture) {
    const auto branch = view(branch_, dtype::f32, residual.rows, residual.cols);
    mix(branch, normed, *layer.mixture, layer, residual);
    return add_changed(residual, branch, layer.mlp_norm);
  }
  const auto ffn = view(ffn_, weights_->compute, normed.rows, as_size(config.ffn_of(i)));
  const auto& first = *layer.mlp.gate_up;
  drop_smallest(normed, weights_->sparsity.up, first);
  const auto* bias = floats(layer.mlp.gate_up_bias);
  if (config.cuts_gates(i))
    gate_gaussian(i, ffn, normed);
  else if (adapters_)
    adapters_->linear_activated(backend_, i, ffn, normed, first, layer.act, config.gated, bias);
  else
    backend_.linear_activated(ffn, normed, first, layer.act, config.gated, bias);
  drop_smallest(ffn, weights_->sparsity.down, *layer.mlp.down);
  add_branch(i, adapter_site::down, residual, ffn, *layer.mlp.down, layer.mlp.down_bias, layer.mlp_norm);
}

void decoder::add_layer_input(int i, const tensor& residual, const tensor& normed) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  const auto width = as_size(config.layer_inputs), all = as_size(config.layers) * width;
  const auto gate = view(ffn_, weights_->compute, normed.rows, width);
  const auto branch = view(branch_, dtype::f32, residual.rows, residual.cols);
  backend_.gather_rows(normed, residual);
  backend_.linear_activated(gate, normed, *layer.input_gate, config.act, false);
  backend_.multiply_rows(gate, columns(view(inputs_, dtype::f32, rows_, all), as_size(i) * width, width));
  backend_.linear(branch, gate, *layer.input_projection);
  add_changed(residual, branch, layer.input_projection_norm);
}

void decoder::drop_smallest(const tensor& in, float share, const kernels::matrix& w) {
  if (share > 0)
    dynamic_cast<kernels::activation_sparsity&>(backend_).drop_smallest(in, share, w);
}

void decoder::score_experts(const tensor& in, const mixture_weights& mixture) {
  const auto logits = view(router_, dtype::f32, in.rows, as_size(weights_->config.experts.count));
  backend_.linear(logits, in, *mixture.router, floats(mixture.router_bias));
}

std::vector<expert_rows> decoder::route(const tensor& normed, const mixture_weights& mixture) {
  const auto& experts = weights_->config.experts;
  if (!experts.early)
    score_experts(normed, mixture);
  const auto logits = view(router_, dtype::f32, normed.rows, as_size(experts.count));
  std::vector<float> choice(logits.rows * logits.cols);
  backend_.download(choice.data(), logits);
  auto chosen = group_by_expert(experts, choice, mixture.correction);
  if (walk_) {
    std::vector<int> numbers;
    for (const auto& group : chosen)
      numbers.push_back(group.expert);
    walk_.choose(numbers);
  }
  if (!mixture.scales.empty())
    for (auto& [expert, rows, weights] : chosen)
      for (float& weight : weights)
        weight *= mixture.scales[as_size(expert)];
  return chosen;
}

void decoder::add_chosen(const tensor& to, const tensor& normed, const mixture_weights& mixture,
                         std::span<const expert_rows> chosen) {
  std::vector<kernels::row_group> up, down;
  for (const auto& [expert, rows, weights] : chosen) {
    const auto& mlp = mixture.experts[as_size(expert)];
    up.push_back({mlp.gate_up.get(), floats(mlp.gate_up_bias), rows});
    down.push_back({mlp.down.get(), floats(mlp.down_bias), rows, weights});
  }
  add_experts(to, normed, up, down, kernels::store::set);
}

void decoder::add_shared(const tensor& to, const tensor& normed, const mixture_weights& mixture, kernels::store how) {
  std::vector<std::int32_t> all(normed.rows);
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> factors(normed.rows, 1);
  if (mixture.shared_gate) {
    const auto gate = view(router_, dtype::f32, normed.rows, 1);
    backend_.linear(gate, normed, *mixture.shared_gate);
    backend_.download(factors.data(), gate);
    for (float& f : factors)
      f = 1 / (1 + std::exp(-f));
  }
  const auto& mlp = mixture.shared;
  const kernels::row_group shared_up{mlp.gate_up.get(), floats(mlp.gate_up_bias), all};
  const kernels::row_group shared_down{mlp.down.get(), floats(mlp.down_bias), all, factors};
  add_experts(to, normed, {&shared_up, 1}, {&shared_down, 1}, how);
}

void decoder::mix(const tensor& to, const tensor& normed, const mixture_weights& mixture, const layer_weights& layer,
                  const tensor& residual) {
  const auto& experts = weights_->config.experts;
  if (experts.apart)
    return mix_apart(to, normed, mixture, residual);
  const auto chosen = route(normed, mixture);
  if (experts.weigh_inputs)
    add_weighed(to, layer, residual, chosen);
  else
    add_chosen(to, normed, mixture, chosen);
  if (mixture.shared.down)
    add_shared(to, normed, mixture, kernels::store::add);
}

void decoder::mix_apart(const tensor& to, const tensor& normed, const mixture_weights& mixture,
                        const tensor& residual) {
  const auto others = view(weighed_, dtype::f32, residual.rows, residual.cols);
  add_shared(to, normed, mixture, kernels::store::set);
  normalise(to, to, mixture.shared_norm);
  normalise(normed, residual, mixture.router_norm);
  const auto chosen = route(normed, mixture);
  normalise(normed, residual, mixture.input_norm);
  add_chosen(others, normed, mixture, chosen);
  normalise(others, others, mixture.result_norm);
  backend_.add_rows(to, others, 1);
}

void decoder::add_weighed(const tensor& to, const layer_weights& layer, const tensor& residual,
                          std::span<const expert_rows> chosen) {
  const auto& config = weights_->config;
  const auto rows = residual.rows, hidden = residual.cols, each = as_size(config.experts.chosen);
  auto* memory = static_cast<float*>(weighed_.get());
  const tensor wide{memory, dtype::f32, rows, hidden, hidden};
  const tensor weighed{memory + as_size(max_rows_) * hidden, dtype::f32, each * rows, hidden, hidden};
  const tensor inputs{memory + as_size(max_rows_) * hidden * (1 + each), weights_->compute, each * rows, hidden,
                      hidden};
  normalise(wide, residual, layer.post_norm);
  // A row's k-th expert reads row k * rows + row.
  std::vector<std::size_t> seen(rows);
  std::vector<float> factors(each * rows);
  std::vector<std::vector<std::int32_t>> places;
  for (const auto& group : chosen) {
    auto& own = places.emplace_back();
    for (std::size_t i = 0; i < group.rows.size(); ++i) {
      const auto row = as_size(group.rows[i]), place = seen[row]++ * rows + row;
      own.push_back(static_cast<std::int32_t>(place));
      factors[place] = group.weights[i];
    }
  }
  backend_.scale(weighed, 0);
  for (std::size_t k = 0; k < each; ++k)
    backend_.add_rows({static_cast<float*>(weighed.data) + k * rows * hidden, dtype::f32, rows, hidden, hidden}, wide,
                      1, nullptr, &factors[k * rows]);
  backend_.gather_rows(inputs, weighed);
  const std::vector<float> ones(rows, 1);
  std::vector<kernels::row_group> up, down;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto& mlp = layer.mixture->experts[as_size(chosen[i].expert)];
    up.push_back({mlp.gate_up.get(), floats(mlp.gate_up_bias), places[i]});
    down.push_back(
      {mlp.down.get(), floats(mlp.down_bias), chosen[i].rows, std::span(ones).first(chosen[i].rows.size())});
  }
  add_experts(to, inputs, up, down, kernels::store::set);
}

void decoder::add_experts(const tensor& to, const tensor& normed, std::span<const kernels::row_group> up,
                          std::span<const kernels::row_group> down, kernels::store how) {
  const auto& config = weights_->config;
  std::size_t rows = 0;
  for (const auto& group : up)
    rows += group.rows.size();
  const auto ffn = view(ffn_, weights_->compute, rows, down.front().w->inputs);
  backend_.grouped_activated(ffn, normed, up, config.act, config.gated);
  backend_.grouped_sum(to, ffn, down, how);
}

void decoder::check(const kernels::batch& who, const kernels::kv_cache& cache) const {
  const auto& config = weights_->config;
  const auto rows = static_cast<std::int64_t>(rows_);
  const auto expected = kv_shape_of(config, weights_->compute, 0);
  require(cache.shape.layers == expected.layers && cache.shape.kv_heads == expected.kv_heads &&
            cache.shape.head_dim == expected.head_dim && cache.shape.own == expected.own,
          "a KV cache of another model");
  std::int64_t covered = 0;
  for (const auto& s : who.sequences) {
    require(s.rows > 0 && s.first_row == covered, "sequences that do not cover the rows in order");
    covered += s.rows;
    const auto end = std::int64_t{s.first_position} + s.rows;
    require(s.first_position >= 0 && end <= max_context_, "a position beyond the context");
    require(!config.encoder || (s.first_position == 0 && s.length == s.rows), "a part of a text that is encoded whole");
    const auto blocks = blocks_for(end);
    require(s.first_block >= 0 && s.first_block + blocks <= static_cast<std::int64_t>(who.block_tables.size()),
            "a block table that does not cover its sequence");
    require(
      std::ranges::all_of(who.block_tables.subspan(as_size(s.first_block), static_cast<std::size_t>(blocks)),
                          [&](std::int32_t b) { return b >= 0 && static_cast<std::size_t>(b) < cache.shape.blocks; }),
      "a block outside the KV cache");
  }
  require(covered == rows, "sequences that do not cover the rows in order");
}

} // namespace troupe
