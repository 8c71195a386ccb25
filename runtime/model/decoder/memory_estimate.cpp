#include "runtime/model/decoder/memory_estimate.hpp"

#include "kernels/distance_attention.hpp"
#include "kernels/planned_steps.hpp"
#include "runtime/model/decoder/decoder_sizes.hpp"
#include "runtime/model/gram_layers.hpp"
#include "runtime/model/packing.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace troupe {

namespace {

/// Of the layers that attend to what an indexer chooses, or to entries.
kernels::planned_choice plan_choice(const model_config& config, int context) {
  kernels::planned_choice choice;
  const auto& indexer = config.indexer;
  for (int i = config.part().first; i < config.part().end; ++i)
    choice.sharing = std::max(
      choice.sharing,
      as_size(config.latent || config.compressed ? config.heads_of(i) : config.heads_of(i) / config.kv_heads_of(i)));
  if (indexer) {
    choice.seen = as_size(indexer.top_within(context));
    choice.dim = as_size(indexer.dim);
    choice.choosers = as_size(indexer.choices());
    choice.group = as_size(indexer.group);
    choice.each = as_size(std::max(indexer.group, indexer.block));
  }
  if (const auto& of = config.compressed) {
    std::size_t most = 0;
    int least_rate = context;
    for (int i = config.part().first; i < config.part().end; ++i) {
      const int rate = of.rates[as_size(i)];
      if (rate == 0)
        continue;
      const bool indexed = config.indexes(i);
      most = std::max(most, as_size(indexed ? std::min(context / rate, indexer.top_within(context)) : context / rate));
      choice.entry_tokens = std::max(choice.entry_tokens, as_size(indexed ? 2 * rate : rate));
      if (indexed)
        least_rate = std::min(least_rate, rate);
    }
    choice.seen = as_size(std::min(of.window, context)) + most;
    choice.each = as_size(std::max(1, least_rate));
  }
  return choice;
}

kernels::planned_steps plan_steps(const checkpoint& tensors, const model_config& config, precision precision,
                                  const decoder_steps& largest) {
  kernels::planned_steps steps;
  steps.compute = precision.compute;
  steps.rows = as_size(largest.rows);
  steps.logit_rows = steps.sequences = std::min(as_size(largest.logit_rows), steps.rows);
  steps.context = as_size(largest.context);
  steps.recurrent = config.has_states();
  steps.recalled = config.grams ? as_size(config.grams.size - 1) : 0;
  steps.looked_up = config.grams ? as_size(config.grams.lookups()) : 0;
  steps.heads = std::max(config.heads, config.local_heads);
  steps.cache = kv_shape_of(config, precision, 0);
  std::set<std::array<int, 6>> ways;
  for (int i = config.part().first; i < config.part().end; ++i)
    if (const int window = config.windows[as_size(i)];
        ways
          .insert({window, config.chunk_of(i), config.kv_heads_of(i), config.head_dim_of(i), config.heads_of(i),
                   config.compressed ? config.compressed.rates[as_size(i)] : 0})
          .second)
      steps.windows.push_back(window);
  steps.choice = plan_choice(config, largest.context);
  const auto& pairs = config.shared_blocks;
  steps.added_ranks = as_size(std::max(3 * pairs.attention_rank, pairs.mlp_rank)); // of q, k and v
  for (int i = config.part().first; pairs.mlp_rank > 0 && i < config.part().end; ++i)
    steps.added_outputs = std::max(steps.added_outputs, (config.gated ? 2 : 1) * as_size(config.ffn_of(i)));
  for (const auto& group : packed_groups(config, precision))
    steps.matrices.push_back({describe(tensors, group), group.how, group.gated, steps.rows,
                              group.expert ? as_size(config.experts.chosen) : 0, !config.gated});
  if (config.has_head()) {
    steps.matrices.back().rows = steps.logit_rows;
    steps.matrices.back().activated = false;
  }
  return steps;
}

} // namespace

memory_estimate estimate_memory(const checkpoint& tensors, const model_config& config, precision precision,
                                const kernels::backend& backend, const decoder_steps& steps) {
  const tensor_names names(config);
  memory_estimate estimate;
  for (const auto& w : names.all())
    if (require_tensor(tensors, w).shape.size() == 1 && !tensor_names::on_host(w.name))
      estimate.weights += w.shape[0] * sizeof(float) *
        (config.recurrent.head_norm && w.name.ends_with(".recurrent.norm.weight") ? as_size(config.recurrent.heads)
                                                                                  : 1);
    else if (w.name.ends_with("conv.weight") || w.name.ends_with(".recurrent.decay"))
      estimate.weights += w.shape[0] * w.shape[1] * sizeof(float);
    else if (w.name.ends_with(".self_attn.distances"))
      estimate.weights += w.shape[0] * (w.shape[1] + 2 * kernels::distance_padding) * sizeof(float);
  for (int i = config.part().first; config.shared_blocks && i < config.part().end; ++i)
    if (config.parts_of(i).attention)
      estimate.weights += pair_bytes(names.qkv_pairs(i), precision.compute) +
        pair_bytes(names.gate_up_pairs(i), precision.compute);
  for (const auto& group : packed_groups(config, precision))
    estimate.packed += packed_bytes(tensors, group, precision, backend);
  estimate.weights += estimate.packed;
  const bool embeds = config.part().embeds;
  if (embeds && !head_gives_table(tensors, config, precision, backend))
    estimate.weights += backend.table_bytes(describe(tensors, names.embedding()));
  if (embeds && config.positions == position_type::learned)
    estimate.weights += backend.table_bytes(describe(tensors, names.positions()));
  if (embeds && config.token_types > 0)
    estimate.weights += backend.table_bytes(describe(tensors, names.token_types()));
  if (config.layer_inputs > 0)
    estimate.weights += backend.table_bytes(describe(tensors, names.layer_inputs()));
  for (int i = config.part().first; i < config.part().end; ++i)
    for (int part = 0; config.grams.at(i) && part < config.grams.parts; ++part)
      estimate.weights += backend.table_bytes(describe(tensors, gram_tensors(config, i).table(part)));
  estimate.activations = activation_bytes(config, precision.compute, steps.rows, steps.context).total();
  estimate.scratch = backend.scratch_bytes(plan_steps(tensors, config, precision, steps));
  estimate.kv_block = estimate.kv_whole = kv_shape_of(config, precision, 1).block_bytes();
  if (config.recurrent) {
    const auto states = state_shape_of(config, 1, 0, most_state_guesses);
    estimate.state = states.slot_bytes();
    estimate.sequence_state = states.bytes();
  }
  return estimate;
}

} // namespace troupe
