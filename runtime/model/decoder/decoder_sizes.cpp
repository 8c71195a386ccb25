#include "runtime/model/decoder/decoder_sizes.hpp"

#include "runtime/model/branch_convolutions.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>

namespace troupe {

std::size_t pair_bytes(const std::vector<wanted_tensor>& stored, kernels::dtype compute) {
  std::size_t values = 0;
  for (const auto& w : stored)
    values += w.shape[0] * w.shape[1];
  return values * size_of(compute);
}

bool host_takes_part(const model_config& config) {
  return config.experts.count > 0 || config.grams || config.growth || config.head_growth ||
    config.positions == position_type::learned || config.token_types > 0 || config.altup || config.hyper;
}

bool host_reads_tokens(const model_config& config) { return config.grams || !config.hashed.empty(); }

namespace {

/// Whether what attention and MLP give is changed before it is added to the residual.
bool changes_branches(const model_config& config) {
  return config.hyper || config.norms == norm_place::after || config.norms == norm_place::both ||
    config.residual_scale != 1 || config.experts.count > 0 || config.layer_inputs > 0 ||
    config.recurrent.type == recurrent_type::branches || config.recurrent.out_scale != 1 ||
    config.recurrent.attention_scale != 1 || config.shared_blocks;
}

std::size_t rope_tables(const model_config& config, int max_context) {
  if (config.positions != position_type::rotary)
    return 0;
  const auto tables = [&](const rope_config& rope) { return rope_border(rope, max_context) > 0 ? 2 : 1; };
  return as_size(tables(config.rope) + (config.local_rope ? tables(*config.local_rope) : 0));
}

} // namespace

activation_sizes activation_bytes(const model_config& config, kernels::dtype compute, int max_rows, int max_context) {
  const auto rows = as_size(max_rows), hidden = as_size(config.hidden), element = size_of(compute);
  std::size_t q = 0, kv = 0, dense = 0, mixes = 0, branches = 0;
  for (int i = 0; i < config.layers; ++i) {
    mixes = std::max(mixes, as_size(config.mixes_of(i)));
    for (const auto site : branch_sites)
      branches = std::max(branches, as_size(branch_channels(config, i, site)));
    q = std::max(q, as_size(config.heads_of(i)) * as_size(config.head_dim_of(i)));
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
  bytes.qkv = rows * (q + 2 * kv + (config.attention_gate ? q : 0) + mixes) * sizeof(float);
  if (config.recurrent.type == recurrent_type::branches)
    bytes.branches = rows * branches * sizeof(float);
  bytes.attended = rows * q * element;
  if (config.value_dim > 0)
    bytes.spread = bytes.qkv;
  bytes.ffn = rows * ffn * element;
  if (changes_branches(config))
    bytes.branch = rows * hidden * sizeof(float);
  bytes.router = rows * as_size(experts.count) * sizeof(float);
  if (experts.weigh_inputs)
    bytes.weighed = rows * hidden * (sizeof(float) + as_size(experts.chosen) * (sizeof(float) + element));
  if (experts.nulls > 0)
    bytes.weighed = rows * hidden * sizeof(float);
  if (experts.shortcut)
    bytes.shortcut = rows * hidden * sizeof(float);
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
    const auto gates = config.attention_gate ? heads * value : 0;
    bytes.latent_down = rows * ((q_rank > 0 ? q_rank : heads * query) + rank + as_size(latent.rotated) + gates) *
      sizeof(float);
    bytes.latent_queries = rows * (heads + 2) * query * sizeof(float);
    bytes.latents = rows * std::max((heads + 2) * rank, heads * value) * sizeof(float);
    bytes.latent_inputs = rows * std::max({q_rank, heads * query, heads * rank}) * element;
    bytes.attended = rows * std::max(q, heads * value) * element;
  }
  if (config.indexer) {
    const auto heads = as_size(config.indexer.heads), dim = as_size(config.indexer.dim);
    const auto tables = (rope_border(config.rope, max_context) > 0 ? 2 : 1);
    bytes.rope += as_size(tables) * as_size(max_context) * dim * sizeof(float);
    if (config.indexer.reads_hidden)
      bytes.index_input = rows * hidden * (sizeof(float) + element);
    bytes.index = rows * (heads + 1) * dim * sizeof(float);
    bytes.index_weights = rows * heads * sizeof(float);
    bytes.chosen = rows * as_size(config.indexer.top_within(max_context)) * as_size(config.indexer.choices()) *
      sizeof(std::int32_t);
  }
  if (const auto& of = config.compressed; of) {
    const auto dim = as_size(config.head_dim), all = as_size(config.heads) * dim, index = as_size(config.indexer.dim),
               given = as_size(of.groups) * as_size(of.group_rank), q_rank = as_size(of.q_rank);
    bytes.ones = dim * sizeof(float);
    bytes.compressed_down = rows * (q_rank + dim) * sizeof(float);
    bytes.compressed_made = rows * std::max({(config.indexer ? 4 : 2) * dim, 4 * index, given}) * sizeof(float);
    bytes.compressed_over = rows * all * sizeof(float);
    bytes.compressed_inputs = rows * std::max(q_rank, all) * element;
    bytes.attended = rows * std::max(all, given) * element;
  }
  if (config.altup) {
    const auto rank = as_size(config.altup.laurel);
    bytes.streams = as_size(config.altup.streams) * rows * hidden * sizeof(float);
    bytes.routed = rows * as_size(config.altup.streams) * sizeof(float);
    bytes.laurel = rows * hidden * sizeof(float);
    bytes.laurel_down = rows * rank * sizeof(float);
    bytes.laurel_low = rows * rank * element;
  }
  if (const auto& hyper = config.hyper; hyper) {
    const auto streams = as_size(hyper.streams), width = rows * streams * hidden, rank = as_size(hyper.rank);
    bytes.hyper_streams = width * sizeof(float) * (hyper.mixes() ? 2 : 1);
    bytes.hyper_normed = width * (element + (rank > 0 ? 2 * sizeof(float) : 0));
    bytes.hyper_mix = rows *
      (rank > 0 ? rank * (sizeof(float) + element) + streams * sizeof(float) : (2 + streams) * streams * sizeof(float));
    if (rank == 0)
      bytes.hyper_ones = streams * hidden * sizeof(float);
  }
  if (const auto& grams = config.grams; grams) {
    const auto found = rows * as_size(grams.width());
    bytes.grams_found = 2 * found * sizeof(float);
    bytes.grams_narrow = found * element;
    bytes.grams_streams = rows * as_size(config.residual_width()) * sizeof(float);
    bytes.grams_values = rows * hidden * sizeof(float);
  }
  if (config.shared_blocks) {
    bytes.joined = rows * 2 * hidden * sizeof(float);
    bytes.joined_read = rows * 2 * hidden * element;
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
      const auto made = r.type == recurrent_type::selective ? r.rank + 2 * r.key_dim : r.heads * r.key_dim;
      bytes.recurrent_rates = rows * as_size(made + r.inner()) * sizeof(float);
      bytes.recurrent_low = rows * as_size(r.rank) * element;
    }
    if (r.parts_norm_plain)
      bytes.ones += as_size(std::max(r.rank, r.key_dim)) * sizeof(float);
    bytes.attended = std::max(bytes.attended, rows * as_size(recurrent_inner(config)) * element);
  }
  return bytes;
}

} // namespace troupe
