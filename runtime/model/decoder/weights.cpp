#include "runtime/model/decoder/weights.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/distance_attention.hpp"
#include "kernels/low_rank.hpp"
#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/checkpoint/packed/weight_pager.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/model/branch_convolutions.hpp"
#include "runtime/model/decoder/backend_check.hpp"
#include "runtime/model/decoder/decoder_sizes.hpp"
#include "runtime/model/decoder/weight_placement.hpp"
#include "runtime/model/decoder/weight_reader.hpp"
#include "runtime/model/gram_layers.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

class weight_loader : private weight_reader {
public:
  weight_loader(const checkpoint& tensors, kernels::backend& backend, precision precision, model_weights& to,
                const progress_fn& progress, const weight_cache& cache)
    : weight_reader(tensors, backend, precision, to.config, progress, cache.files),
      precision_(precision),
      to_(to),
      names_(to.config),
      groups_(to.config, precision),
      placement_(cache.placement) {}

  void load() {
    load_model();
    to_.bytes = bytes();
  }

private:
  void load_model() {
    const auto& config = to_.config;
    const auto part = config.part();
    to_.head_gives_embedding = head_gives_table(tensors_, config, precision_, backend_) && head_stays();
    if (part.embeds && !to_.head_gives_embedding)
      to_.embedding = table(names_.embedding(), to_.embedding_memory);
    if (part.embeds && config.positions == position_type::learned)
      to_.positions = table(names_.positions(), to_.positions_memory);
    if (part.embeds && config.token_types > 0)
      to_.token_types = table(names_.token_types(), to_.token_types_memory);
    if (config.learned_frequencies) {
      std::vector<float> alphas;
      append(alphas, names_.frequencies());
      report(names_.frequencies());
      for (const float alpha : alphas)
        to_.config.rope.divisors.push_back(std::exp(-alpha));
    }
    if (part.embeds && config.embedding_norm)
      to_.embedding_norm = norm(names_.embedding_norm(), config.embedding_norm_plain);
    if (config.layer_inputs > 0) {
      to_.layer_inputs = table(names_.layer_inputs(), to_.layer_inputs_memory);
      to_.layer_projection = matrix(groups_.layer_projection());
      to_.layer_projection_norm = norm(names_.layer_projection_norm());
    }
    for (int i = 1; i < config.altup.streams; ++i)
      to_.altup_in.push_back(matrix(groups_.altup_in(i)));
    for (int i = part.first; i < part.end; ++i)
      load_layer(i, to_.layers.emplace_back());
    for (int i = 1; i < config.altup.streams; ++i)
      to_.altup_out.push_back(matrix(groups_.altup_out(i)));
    if (!part.heads)
      return;
    if (config.hyper)
      to_.hyper_head = load_hyper(names_.hyper_head());
    if (config.final_norm)
      to_.final_norm = norm(names_.final_norm());
    if (!config.has_head())
      return;
    to_.head = matrix(groups_.head());
    if (to_.head_gives_embedding)
      to_.embedding = backend_.storable()->table_of(*to_.head);
    if (config.head_bias)
      to_.head_bias = vector({names_.head_bias()});
  }

  /// Whether the head is in memory whenever a step begins.
  bool head_stays() const { return placement_ == nullptr || placement_->kept.back(); }

  void load_layer(int i, layer_weights& layer) {
    const auto& config = to_.config;
    const auto parts = config.parts_of(i);
    const auto norms = config.norms_of(i);
    if (norms == norm_place::before || norms == norm_place::both) {
      if (parts.mixes() && (i > 0 || !config.skips_first_norm))
        layer.input_norm = norm(names_.input_norm(i));
      if (parts.mlp && !config.shared_norm && !config.borrows_block(i))
        layer.post_norm = norm(names_.post_norm(i));
    }
    if (config.norms_attention(i))
      layer.attention_norm = norm(names_.attention_norm(i));
    if (config.norms_mlp(i))
      layer.mlp_norm = norm(names_.mlp_norm(i));
    if (config.layer_inputs > 0) {
      layer.input_gate = matrix(groups_.input_gate(i));
      layer.input_projection = matrix(groups_.input_projection(i));
      layer.input_projection_norm = norm(names_.input_projection_norm(i));
    }
    if (config.altup)
      layer.altup = load_altup(i);
    if (config.hyper && parts.mixes())
      layer.hyper_attention = load_hyper(names_.hyper_attention(i));
    if (config.hyper && parts.mlp)
      layer.hyper_mlp = load_hyper(names_.hyper_mlp(i));
    if (config.layer_scales)
      layer.scale = host_number(names_.layer_scale(i));
    layer.act = activation(i);
    if (parts.recurrence)
      layer.recurrent = load_recurrence(i);
    if (config.grams.at(i))
      layer.grams = load_grams(i);
    if (config.recurrent.type == recurrent_type::branches)
      layer.branches = load_branches(i);
    if (config.shared_blocks && parts.attention)
      layer.block = load_block(i);
    if (config.borrows_block(i))
      return borrow(i, layer);
    if (parts.attention)
      load_attention(i, layer);
    if (!parts.mlp)
      return;
    if (config.is_sparse(i))
      layer.mixture = load_mixture(i);
    if (!config.is_sparse(i) || config.experts.shortcut)
      layer.mlp = mlp(groups_.gate_up(i), groups_.down(i), config.mlp_bias);
  }

  /// The holder of a layer's block comes before it.
  const layer_weights& holder(int i) const {
    const auto& config = to_.config;
    int first = config.part().first;
    while (!config.holds_block(first) || config.block_layer(first) != config.block_layer(i))
      ++first;
    return to_.layer(first);
  }

  void borrow(int i, layer_weights& layer) {
    const auto& from = holder(i);
    layer.post_norm = from.post_norm;
    layer.qkv = from.qkv;
    layer.o = from.o;
    layer.mlp = from.mlp;
  }

  std::unique_ptr<const shared_block_weights> load_block(int i) {
    auto block = std::make_unique<shared_block_weights>();
    block->joined_norm = to_.config.holds_block(i) ? norm(names_.joined_norm(i)) : holder(i).block->joined_norm;
    block->output = matrix(groups_.block_output(i));
    block->qkv_pairs = load_pairs(names_.qkv_pairs(i), false);
    block->gate_up_pairs = load_pairs(names_.gate_up_pairs(i), to_.config.gated);
    return block;
  }

  /// Pairs of one product, whose outputs follow each other.
  std::unique_ptr<const kernels::matrix> load_pairs(const std::vector<wanted_tensor>& stored, bool gated) {
    if (stored.empty())
      return nullptr;
    std::vector<std::vector<float>> values(stored.size());
    std::vector<kernels::low_rank_pair> pairs;
    std::size_t outputs = 0;
    for (std::size_t n = 0; n < stored.size(); n += 2) {
      append_matrix(values[n], stored[n]);
      append_matrix(values[n + 1], stored[n + 1]);
      const auto own = stored[n + 1].shape[0];
      pairs.push_back({outputs, own, stored[n].shape[0], values[n].data(), values[n + 1].data()});
      outputs += own;
    }
    count_bytes(pair_bytes(stored, precision_.compute));
    return dynamic_cast<kernels::low_rank_products&>(backend_).pack_low_rank(pairs, stored[0].shape[1], outputs,
                                                                             precision_.compute, gated);
  }

  void load_attention(int i, layer_weights& layer) {
    const auto& config = to_.config;
    if (const auto norms = names_.qk_norms(i); !norms.empty()) {
      layer.q_norm = vector({norms.front()});
      if (norms.size() > 1)
        layer.k_norm = vector({norms.back()});
    }
    if (config.has_sinks(i))
      layer.sinks = vector({names_.sinks(i)});
    if (config.distances)
      layer.distances = load_distances(i);
    layer.qkv = matrix(groups_.qkv(i));
    layer.qkv_bias = bias(names_.qkv(i), config.qkv_bias);
    layer.o = matrix(groups_.o(i));
    if (config.latent)
      layer.latent = load_latent(i);
    if (config.compressed)
      layer.compressed = load_compressed(i);
    if (config.indexes(i))
      layer.indexer = load_indexer(i);
    layer.o_bias = bias(names_.o(i), config.o_bias);
  }

  std::unique_ptr<const recurrent_weights> load_recurrence(int i) {
    const auto& config = to_.config.recurrent;
    const recurrent_tensors tensors(to_.config, i);
    auto layer = std::make_unique<recurrent_weights>();
    layer->in = matrix(groups_.recurrent_in(i));
    layer->out = matrix(groups_.recurrent_out(i));
    if (tensors.has_rate_up())
      layer->rate_up = matrix(groups_.recurrent_rate(i));
    if (config.type == recurrent_type::selective) {
      layer->parts = matrix(groups_.recurrent_parts(i));
      load_part_norms(tensors, *layer);
    }
    if (tensors.has_gate_up())
      layer->gate_up = matrix(groups_.recurrent_gate(i));
    layer->convolution = load_convolution(tensors.convolution());
    if (config.conv_bias)
      layer->bias = vector(tensors.convolution_bias());
    layer->in_bias = bias(tensors.in(), config.projection_bias);
    layer->out_bias = bias({tensors.out()}, config.projection_bias);
    if (tensors.has_heads()) {
      layer->decay = load_decay(tensors.decay());
      layer->dt_bias = vector({tensors.dt_bias()});
    }
    if (tensors.has_skip())
      layer->skip = vector({tensors.skip()});
    if (config.norm != kernels::gate_norm::none)
      layer->norm = vector(std::vector<wanted_tensor>(config.head_norm ? as_size(config.heads) : 1, tensors.norm()));
    return layer;
  }

  std::vector<float> read_convolution(const std::vector<wanted_tensor>& stored) {
    std::vector<float> weights;
    for (const auto& w : stored) {
      append(weights, {w.name, {w.shape[0] * w.shape[1]}});
      report(w);
    }
    const auto taps = stored.front().shape[1];
    return tap_major(weights, weights.size() / taps, taps);
  }

  kernels::buffer load_convolution(const std::vector<wanted_tensor>& stored) {
    return upload(read_convolution(stored));
  }

  std::unique_ptr<const branch_weights> load_branches(int i) {
    const branch_tensors tensors(to_.config, i);
    const float scale = host_number(tensors.scale());
    auto branches = std::make_unique<branch_weights>();
    for (const auto site : branch_sites) {
      const auto wanted = tensors.convolution(site);
      auto weights = read_convolution({wanted});
      for (auto of_row = weights.size() - wanted.shape[0]; of_row < weights.size(); ++of_row)
        weights[of_row] += 1;
      if (site == branch_site::mlp)
        for (float& w : weights)
          w *= scale;
      branches->convolutions[static_cast<std::size_t>(site)] = upload(weights);
    }
    return branches;
  }

  kernels::buffer load_distances(int i) {
    std::vector<float> numbers;
    append_matrix(numbers, names_.distances(i));
    return upload(kernels::distance_table(numbers, to_.config.distances.width, to_.config.distance_extent_of(i)));
  }

  std::unique_ptr<const gram_weights> load_grams(int i) {
    const gram_tensors tensors(to_.config, i);
    check_stored_hashes(tensors_, to_.config.grams, i);
    auto grams = std::make_unique<gram_weights>();
    grams->memory.resize(as_size(to_.config.grams.parts));
    for (int part = 0; part < to_.config.grams.parts; ++part)
      grams->tables.push_back(table(tensors.table(part), grams->memory[as_size(part)]));
    grams->key = matrix(groups_.gram_key(i));
    grams->value = matrix(groups_.gram_value(i));
    grams->key_norm = vector({tensors.key_norm()});
    grams->stream_norm = vector({tensors.stream_norm()});
    grams->value_norm = vector({tensors.value_norm()});
    grams->convolution = load_convolution({tensors.convolution()});
    return grams;
  }

  kernels::buffer load_decay(const wanted_tensor& w) {
    const auto& r = to_.config.recurrent;
    std::vector<float> values;
    append(values, {w.name, {w.shape.size() > 1 ? w.shape[0] * w.shape[1] : w.shape[0]}});
    report(w);
    if (r.log_decay)
      for (float& v : values)
        v = -std::exp(v);
    return upload(w.shape.size() > 1 ? tap_major(values, w.shape[0], w.shape[1]) : values);
  }

  void load_part_norms(const recurrent_tensors& tensors, recurrent_weights& layer) {
    const auto stored = tensors.part_norms();
    kernels::buffer* to[] = {&layer.dt_norm, &layer.b_norm, &layer.c_norm};
    for (std::size_t i = 0; i < stored.size(); ++i)
      *to[i] = vector({stored[i]});
  }

  std::unique_ptr<const altup_weights> load_altup(int i) {
    auto altup = std::make_unique<altup_weights>();
    altup->router = matrix(groups_.altup_router(i));
    altup->router_norm = norm(names_.altup_router_norm(i));
    append_matrix(altup->predict, names_.altup_prediction(i));
    append_matrix(altup->correct, names_.altup_correction(i));
    altup->output_scale = vector({names_.altup_output_scale(i)});
    altup->laurel_down = matrix(groups_.laurel_down(i));
    altup->laurel_up = matrix(groups_.laurel_up(i));
    altup->laurel_norm = norm(names_.laurel_norm(i));
    return altup;
  }

  std::unique_ptr<const hyper_weights> load_hyper(const std::vector<wanted_tensor>& stored) {
    auto hyper = std::make_unique<hyper_weights>();
    const auto groups = groups_.hyper(stored);
    if (to_.config.hyper.rank == 0) {
      hyper->mix = matrix(groups.front());
      append(hyper->base, stored[1]);
      append(hyper->scale, stored[2]);
      report(stored[1]);
      report(stored[2]);
      return hyper;
    }
    hyper->norm = vector({stored.front()});
    hyper->down = matrix(groups[0]);
    hyper->up = matrix(groups[1]);
    if (groups.size() > 2)
      hyper->mix = matrix(groups[2]);
    return hyper;
  }

  std::unique_ptr<const latent_weights> load_latent(int i) {
    auto latent = std::make_unique<latent_weights>();
    if (to_.config.has_kv(i))
      latent->kv_norm = vector({names_.latent_kv_norm(i)});
    if (to_.config.head_growth)
      latent->growth = growth(names_.head_growth(i));
    if (to_.config.latent.q_rank > 0) {
      latent->q_norm = vector({names_.latent_q_norm(i)});
      latent->q = matrix(groups_.latent_q(i));
    }
    for (int h = 0; h < to_.config.heads; ++h) {
      latent->key.push_back(matrix(groups_.latent_key(i, h)));
      latent->value.push_back(matrix(groups_.latent_value(i, h)));
    }
    return latent;
  }

  std::unique_ptr<const compressed_weights> load_compressed(int i) {
    const auto& of = to_.config.compressed;
    auto compressed = std::make_unique<compressed_weights>();
    compressed->q_norm = vector({names_.compressed_q_norm(i)});
    compressed->kv_norm = vector({names_.compressed_kv_norm(i)});
    compressed->q = matrix(groups_.compressed_q(i));
    for (int g = 0; g < of.groups; ++g)
      compressed->groups.push_back(matrix(groups_.compressed_group(i, g)));
    if (of.rates[as_size(i)] > 0)
      compressed->entries = load_entries(groups_.entries(i), names_.entries(i));
    if (to_.config.indexes(i))
      compressed->index_entries = load_entries(groups_.index_entries(i), names_.index_entries(i));
    return compressed;
  }

  entry_weights load_entries(const packed_group& made, const std::vector<wanted_tensor>& stored) {
    return {matrix(made), vector({stored[2]}), vector({stored[3]})};
  }

  /// The experts of each token.
  std::vector<int> load_table(const wanted_tensor& w) {
    const auto& experts = to_.config.experts;
    const auto chosen = as_size(experts.chosen);
    std::vector<float> numbers;
    append_matrix(numbers, w);
    std::vector<int> table;
    for (const float number : numbers) {
      const auto row = table.end() - static_cast<std::ptrdiff_t>(table.size() % chosen);
      const bool known = number >= 0 && number < static_cast<float>(experts.count) && number == std::floor(number);
      if (!known || std::find(row, table.end(), static_cast<int>(number)) != table.end())
        throw failure(errc::bad_file,
                      tensors_.where(w.name) + ": tensor " + shown(w.name) + " must name for each token " +
                        std::to_string(chosen) + " different ones of " + std::to_string(experts.count) +
                        " experts, which it does not for token " + std::to_string(table.size() / chosen));
      table.push_back(static_cast<int>(number));
    }
    return table;
  }

  growth_weights growth(const std::vector<wanted_tensor>& stored) {
    growth_weights result;
    append(result.scale, stored[0]);
    append(result.bias, stored[1]);
    std::ranges::for_each(stored, [&](const wanted_tensor& w) { report(w); });
    return result;
  }

  std::unique_ptr<const index_weights> load_indexer(int i) {
    auto indexer = std::make_unique<index_weights>();
    indexer->q = matrix(groups_.index_q(i));
    if (to_.config.compressed) {
      indexer->head = matrix(groups_.index_weights(i));
      return indexer;
    }
    indexer->key = matrix(groups_.index_key(i));
    if (to_.config.indexer.plain()) {
      indexer->key_norm = {vector({names_.index_norm(i)}), nullptr};
      indexer->head_norm = vector({names_.index_head_norm(i)});
      return indexer;
    }
    indexer->key_norm = {vector({names_.index_norm(i)}), vector({tensor_names::bias(names_.index_norm(i))})};
    indexer->head = matrix(groups_.index_weights(i));
    if (const auto norm = names_.index_query_norm(i); to_.config.indexer.reads_hidden)
      indexer->query_norm = {vector({norm}), vector({tensor_names::bias(norm)})};
    if (to_.config.head_growth)
      indexer->growth = growth(names_.index_growth(i));
    return indexer;
  }

  std::unique_ptr<const mixture_weights> load_mixture(int i) {
    const auto& experts = to_.config.experts;
    auto mixture = std::make_unique<mixture_weights>();
    mixture->act = to_.config.expert_act_of(i);
    mixture->shared_act = to_.config.act_of(i);
    mixture->router = matrix(groups_.router(i));
    mixture->router_bias = bias({names_.router(i)}, experts.router_bias);
    if (to_.config.is_hashed(i)) {
      mixture->table = load_table(names_.expert_table(i));
    } else if (experts.correction) {
      append(mixture->correction, names_.router_correction(i));
      report(names_.router_correction(i));
    }
    for (int e = 0; e < experts.count - experts.nulls; ++e)
      mixture->experts.push_back(mlp(groups_.expert_gate_up(i, e), groups_.expert_down(i, e), experts.bias));
    if (experts.shared_ffn > 0)
      mixture->shared = mlp(groups_.shared_gate_up(i), groups_.shared_down(i), false);
    if (experts.shared_gate)
      mixture->shared_gate = matrix(groups_.shared_gate(i));
    if (experts.apart) {
      const auto norms = names_.mixture_norms(i);
      mixture->router_norm = norm(norms[0]);
      mixture->input_norm = norm(norms[1]);
      mixture->shared_norm = norm(norms[2]);
      mixture->result_norm = norm(norms[3]);
      append(mixture->scales, names_.expert_scales(i));
      report(names_.expert_scales(i));
    }
    return mixture;
  }

  mlp_weights mlp(const packed_group& gate_up, const packed_group& down, bool biased) {
    mlp_weights result;
    result.gate_up = matrix(gate_up);
    result.gate_up_bias = bias(gate_up.stacked, biased);
    result.down = matrix(down);
    result.down_bias = bias(down.stacked, biased);
    return result;
  }

  /// A learned activation's parameters are stored as the softplus gives them.
  kernels::activation activation(int i) {
    auto act = to_.config.act_of(i);
    const auto stored = names_.activation(i);
    if (stored.empty())
      return act;
    const auto softplus = [](float x) { return std::log1p(std::exp(x)); };
    act.beta = optional_number(i, "beta", act.beta);
    act.limit = optional_number(i, "eps", act.limit);
    act.alpha = softplus(host_number(stored[0]));
    act.negative = act.beta + softplus(host_number(stored[1]));
    return act;
  }

  /// A number of a learned activation, which some checkpoints store without dimensions.
  float optional_number(int layer, const char* name, float fallback) const {
    const auto full = "model.layers." + std::to_string(layer) + ".mlp.act_fn." + name;
    const auto* info = tensors_.find(full);
    const auto format = info ? weight_format_of(info->type) : std::nullopt;
    if (!format || has_blocks(info->type) || info->bytes != row_bytes(*format, 1))
      return fallback;
    float value = fallback;
    to_floats(*format, tensors_.read(full).get(), 1, &value);
    return value;
  }

  const precision precision_;
  model_weights& to_;
  const tensor_names names_;
  const matrix_groups groups_;
  const weight_placement* placement_; // or null: all stay in memory
};

/// The pager of the matrices that are in the file. Null if there are none.
std::shared_ptr<weight_pager> make_pager(const model_config& config, precision precision, const weight_cache& cache) {
  const auto file = cache.files != nullptr ? cache.files->file() : nullptr;
  if (!file)
    return nullptr;
  const auto part = config.part();
  std::vector<paged_unit> units(as_size(part.end - part.first) + 1);
  for (const auto& group : packed_groups(config, precision)) {
    if (!cache.files->is_mapped(group.name()))
      continue;
    auto& unit = units[as_size(group.unit)];
    if (group.expert)
      unit.experts.resize(std::max(unit.experts.size(), as_size(group.number) + 1));
    (group.expert ? unit.experts[as_size(group.number)] : unit.dense).push_back(file->layout().place_of(group.name()));
  }
  std::optional<std::size_t> expert_bytes;
  if (const auto* placement = cache.placement; placement != nullptr && !placement->fits()) {
    for (std::size_t i = 0; i < units.size(); ++i)
      units[i].streamed = !placement->kept[i] && !units[i].dense.empty();
    expert_bytes = placement->expert_bytes;
  }
  return std::make_shared<weight_pager>(file, std::move(units), expert_bytes);
}

} // namespace

weight_walk walk_through(const model_weights& weights, const kernels::backend& backend) {
  return weight_walk(weights.pager, backend.storable() != nullptr ? &backend.storable()->pool() : nullptr);
}

std::shared_ptr<const model_weights> load_weights(const checkpoint& tensors, const model_config& config,
                                                  kernels::backend& backend, precision precision,
                                                  const progress_fn& progress, weight_cache cache) {
  check_backend(config, backend);
  if (const auto why = why_undivided(config); !why.empty())
    throw failure(errc::unsupported, why);
  check_sparsity(tensors, config, backend, precision);
  const auto weights = std::make_shared<model_weights>();
  weights->config = config;
  weights->compute = precision.compute;
  weights->sparsity = precision.sparsity;
  weights->attention_threshold = precision.attention_threshold;
  weight_loader(tensors, backend, precision, *weights, progress, cache).load();
  if (cache.files != nullptr) {
    weights->being_kept = cache.files->finish();
    weights->pager = make_pager(config, precision, cache);
  }
  return weights;
}

} // namespace troupe
