#include "runtime/model/decoder/model_work.hpp"

#include "runtime/model/recurrent_layers.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

/// Positions that a token at position `context` - 1 attends to.
int seen(int context, int window) { return window > 0 ? std::min(context, window) : context; }

/// Sum of `seen` over contexts 1 to `tokens`.
double seen_by_all(int tokens, int window) {
  const double full = seen(tokens, window); // tokens that see everything before them
  return full * (full + 1) / 2 + (tokens - full) * full;
}

} // namespace

namespace {

weight_work& operator+=(weight_work& sum, const weight_work& more) {
  sum.bytes += more.bytes;
  sum.multiply_adds += more.multiply_adds;
  return sum;
}

weight_work work_of(const kernels::matrix& m, std::size_t parts = 1) { return {m.bytes, parts * m.outputs * m.inputs}; }

weight_work work_of(const model_weights& weights, const mlp_weights& mlp) {
  const bool both = weights.config.gated && mlp.gate_up->outputs == mlp.down->inputs; // as one matrix
  auto work = work_of(*mlp.gate_up, both ? 2 : 1);
  return work += work_of(*mlp.down);
}

weight_work work_of(const hyper_weights& hyper) {
  weight_work work;
  for (const auto* m : {hyper.mix.get(), hyper.down.get(), hyper.up.get()})
    if (m != nullptr)
      work += work_of(*m);
  return work;
}

/// The work of one expert of every mixture; those of a layer are alike.
weight_work work_per_expert(const model_weights& weights) {
  weight_work work;
  for (const auto& layer : weights.layers)
    if (layer.mixture)
      work += work_of(weights, layer.mixture->experts.front());
  return work;
}

/// The work of everything that all tokens are multiplied with.
weight_work common_work(const model_weights& weights) {
  weight_work work;
  for (const auto& layer : weights.layers) {
    if (layer.qkv) {
      work += work_of(*layer.qkv);
      work += work_of(*layer.o);
    }
    if (layer.recurrent) {
      const auto& r = *layer.recurrent;
      for (const auto* m : {r.in.get(), r.rate_up.get(), r.gate_up.get(), r.parts.get(), r.out.get()})
        if (m != nullptr)
          work += work_of(*m);
    }
    if (layer.grams) {
      work += work_of(*layer.grams->key);
      work += work_of(*layer.grams->value);
    }
    if (layer.compressed) {
      const auto& c = *layer.compressed;
      work += work_of(*c.q);
      for (const auto& group : c.groups)
        work += work_of(*group);
      for (const auto* m : {c.entries.made.get(), c.index_entries.made.get()})
        if (m != nullptr)
          work += work_of(*m);
    }
    for (const auto* m :
         {layer.input_gate.get(), layer.input_projection.get(), layer.block ? layer.block->output.get() : nullptr})
      if (m != nullptr)
        work += work_of(*m);
    if (layer.altup)
      for (const auto* m : {layer.altup->router.get(), layer.altup->laurel_down.get(), layer.altup->laurel_up.get()})
        work += work_of(*m);
    for (const auto* hyper : {layer.hyper_attention.get(), layer.hyper_mlp.get()})
      if (hyper != nullptr)
        work += work_of(*hyper);
    if (layer.mlp.down)
      work += work_of(weights, layer.mlp);
    if (!layer.mixture)
      continue;
    work += work_of(*layer.mixture->router);
    if (layer.mixture->shared.down)
      work += work_of(weights, layer.mixture->shared);
    if (layer.mixture->shared_gate)
      work += work_of(*layer.mixture->shared_gate);
  }
  if (weights.hyper_head)
    work += work_of(*weights.hyper_head);
  for (const auto* matrices : {&weights.altup_in, &weights.altup_out})
    for (const auto& m : *matrices)
      work += work_of(*m);
  if (weights.layer_projection)
    work += work_of(*weights.layer_projection);
  return weights.head ? work += work_of(*weights.head) : work;
}

} // namespace

weight_work work_per_token(const model_weights& weights) {
  auto work = common_work(weights);
  const auto expert = work_per_expert(weights);
  for (int i = 0; i < weights.config.experts.chosen; ++i)
    work += expert;
  return work;
}

std::size_t weight_bytes_read(const model_weights& weights, int rows) {
  const auto& experts = weights.config.experts;
  const auto common = common_work(weights).bytes;
  if (experts.count == 0 || rows == 0)
    return common;
  const int some = experts.count - experts.always; // nulls are chosen, too
  const double missed = std::pow(1 - double(experts.chosen - experts.always) / some, rows);
  const double read = (some - experts.nulls) * (1 - missed) + experts.always;
  return common + static_cast<std::size_t>(std::llround(read * double(work_per_expert(weights).bytes)));
}

std::size_t kv_bytes_read(const model_config& config, kernels::kv_type type, int context) {
  std::size_t bytes = 0;
  for (int i = 0; i < config.layers; ++i) {
    if (const auto& of = config.compressed; of) {
      const int entries = of.rates[as_size(i)] > 0 ? context / of.rates[as_size(i)] : 0;
      const auto seen_entries = as_size(config.indexes(i) ? std::min(entries, config.indexer.top) : entries);
      bytes += kernels::key_bytes(type, config.head_dim) * (as_size(seen(context, of.window)) + seen_entries);
      if (config.indexes(i))
        bytes += kernels::key_bytes(type, config.indexer.dim) * as_size(entries);
      continue;
    }
    if (config.parts_of(i).attention)
      bytes += static_cast<std::size_t>(config.kv_heads_of(i)) * kernels::kv_bytes(type, config.head_dim_of(i)) *
        static_cast<std::size_t>(seen(context, config.chooses(i) ? config.indexer.top : config.windows[as_size(i)]));
    if (config.indexes(i))
      bytes += kernels::key_bytes(type, config.indexer.dim) * as_size(context);
  }
  return bytes;
}

std::size_t decode_bytes(const model_weights& weights, kernels::kv_type type, int sequences, int context) {
  return weight_bytes_read(weights, sequences) +
    static_cast<std::size_t>(sequences) * kv_bytes_read(weights.config, type, context);
}

double prefill_operations(const model_config& config, int tokens) {
  const double hidden = config.hidden, q = double(config.heads) * config.head_dim,
               kv = double(config.kv_heads) * config.head_dim;
  const double parts = config.gated ? 3 : 2;
  const auto& experts = config.experts;
  int attending = 0, recurring = 0;
  for (int i = 0; i < config.layers; ++i) {
    attending += config.parts_of(i).attention;
    recurring += config.parts_of(i).recurrence;
  }
  const double gates = config.attention_gate ? q : 0;
  double multiply_adds = tokens * attending * (config.attention_input() * (q + 2 * kv + gates) + q * hidden) +
    hidden * config.vocab;
  if (config.recurrent) {
    double rows = 0;
    for (const auto& w : recurrent_tensors(config, 0).in())
      rows += double(w.shape[0]);
    const auto& r = config.recurrent;
    multiply_adds += tokens * recurring *
      (hidden * (rows + recurrent_inner(config)) + 3.0 * r.inner() * r.key_dim + r.taps * recurrent_channels(config) +
       (r.type == recurrent_type::selective ? double(r.inner()) * (2.0 * r.rank + 2.0 * r.key_dim)
                                            : double(r.rank) * (r.inner() + r.heads * r.key_dim)));
  }
  if (const auto& latent = config.latent; latent) {
    const double heads = config.heads, query = latent.plain + latent.rotated;
    const double queries = latent.q_rank > 0 ? latent.q_rank * (hidden + heads * query) : hidden * heads * query;
    multiply_adds = hidden * config.vocab +
      tokens * config.layers *
        (queries + hidden * kv + heads * latent.kv_rank * (latent.plain + latent.value) +
         hidden * heads * latent.value);
  }
  if (const auto& of = config.compressed; of)
    multiply_adds = hidden * config.vocab +
      tokens * config.layers *
        (of.q_rank * (hidden + q) + hidden * kv + q * of.group_rank + hidden * of.groups * of.group_rank);
  for (int i = 0; i < config.layers; ++i)
    multiply_adds += !config.parts_of(i).mlp ? 0
                                             : tokens * hidden *
        (config.is_sparse(i) ? parts * (double(experts.chosen) * experts.ffn + experts.shared_ffn) + experts.count
                             : parts * config.ffn);
  for (int i = 0; i < config.layers; ++i) {
    if (config.compressed) {
      const double entries = config.compressed.rates[as_size(i)] > 0 ? tokens / config.compressed.rates[as_size(i)] : 0;
      multiply_adds += 2 * q *
        (seen_by_all(tokens, config.compressed.window) +
         tokens * (config.indexes(i) ? std::min<double>(entries / 2, config.indexer.top) : entries / 2));
      continue;
    }
    if (config.parts_of(i).attention)
      multiply_adds += 2 * q * seen_by_all(tokens, config.chooses(i) ? config.indexer.top : config.windows[as_size(i)]);
    if (config.indexes(i)) {
      const double index = double(config.indexer.heads) * config.indexer.dim;
      multiply_adds += index * seen_by_all(tokens, 0) +
        tokens *
          (index * (config.indexer.reads_hidden || !config.latent ? config.hidden : config.latent.q_rank) +
           hidden * (config.indexer.dim + config.indexer.heads));
    }
    if (config.distances)
      multiply_adds += double(config.mixes_of(i)) *
        (tokens * hidden + seen_by_all(tokens, config.distance_extent_of(i)));
    if (config.grams.at(i))
      multiply_adds += double(tokens) * config.grams.width() * (config.residual_width() + hidden);
  }
  return 2 * multiply_adds;
}

} // namespace troupe
