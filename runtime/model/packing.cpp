#include "runtime/model/packing.hpp"

#include "kernels/cpu/cpu_backend.hpp"

#include <utility>

namespace troupe {

using kernels::quantization;

packed_group matrix_groups::int8_at_least(std::vector<wanted_tensor> stacked) const {
  const bool floats = asked_.weights == quantization::none || asked_.weights == quantization::bf16;
  return {std::move(stacked), floats ? asked_.weights : quantization::int8};
}

packed_group matrix_groups::gated(std::vector<wanted_tensor> stacked) const {
  const bool both = stacked.size() == 2;
  return {std::move(stacked), asked_.weights, both};
}

packed_group matrix_groups::gate_up(int layer) const {
  auto group = gated(names_.gate_up(layer));
  group.gated = group.gated && !names_.config().cuts_gates(layer); // else gates are looked at before they count
  return group;
}

std::vector<packed_group> matrix_groups::hyper(const std::vector<wanted_tensor>& of) const {
  std::vector<packed_group> result;
  for (const auto& w : of)
    if (w.shape.size() > 1)
      result.push_back(w.name.find(".input_mix_weight_") != w.name.npos ? int8_at_least({w}) : packed_group{{w}});
  return result;
}

std::vector<packed_group> packed_groups(const model_config& config, precision precision) {
  const matrix_groups all(config, precision);
  const tensor_names names(config);
  const auto part = config.part();
  std::vector<packed_group> groups;
  int unit = 0;
  const auto add = [&](packed_group group) -> packed_group& {
    group.unit = unit;
    return groups.emplace_back(std::move(group));
  };
  if (config.layer_inputs > 0)
    add(all.layer_projection());
  for (int i = 1; i < config.altup.streams; ++i)
    add(all.altup_in(i));
  for (int i = part.first; i < part.end; ++i) {
    const auto parts = config.parts_of(i);
    unit = i - part.first;
    if (parts.recurrence) {
      add(all.recurrent_in(i));
      add(all.recurrent_out(i));
      if (recurrent_tensors(config, i).has_rate_up())
        add(all.recurrent_rate(i));
      if (recurrent_tensors(config, i).has_gate_up())
        add(all.recurrent_gate(i));
      if (config.recurrent.type == recurrent_type::selective)
        add(all.recurrent_parts(i));
    }
    if (config.grams.at(i)) {
      add(all.gram_key(i));
      add(all.gram_value(i));
    }
    if (config.shared_blocks && parts.attention)
      add(all.block_output(i));
    if (config.borrows_block(i))
      continue;
    if (parts.attention) {
      add(all.qkv(i));
      add(all.o(i));
      if (config.latent.q_rank > 0)
        add(all.latent_q(i));
      for (int h = 0; config.latent && h < config.heads; ++h) {
        add(all.latent_key(i, h));
        add(all.latent_value(i, h));
      }
      if (config.compressed) {
        add(all.compressed_q(i));
        for (int g = 0; g < config.compressed.groups; ++g)
          add(all.compressed_group(i, g));
        if (config.compressed.rates[as_size(i)] > 0)
          add(all.entries(i));
        if (config.indexes(i))
          add(all.index_entries(i));
      }
      if (config.indexes(i)) {
        add(all.index_q(i));
        if (!config.compressed)
          add(all.index_key(i));
        if (!config.indexer.plain())
          add(all.index_weights(i));
      }
    }
    if (config.layer_inputs > 0) {
      add(all.input_gate(i));
      add(all.input_projection(i));
    }
    if (config.altup) {
      add(all.altup_router(i));
      add(all.laurel_down(i));
      add(all.laurel_up(i));
    }
    for (int s = 1; s < config.altup.streams && i + 1 == part.end; ++s)
      add(all.altup_out(s));
    if (config.hyper && parts.mixes())
      for (auto& group : all.hyper(names.hyper_attention(i)))
        add(group);
    if (config.hyper && parts.mlp)
      for (auto& group : all.hyper(names.hyper_mlp(i)))
        add(group);
    if (config.hyper && part.heads && i + 1 == part.end)
      for (auto& group : all.hyper(names.hyper_head()))
        add(group);
    if (!parts.mlp)
      continue;
    if (!config.is_sparse(i) || config.experts.shortcut) {
      add(all.gate_up(i));
      add(all.down(i));
    }
    if (!config.is_sparse(i))
      continue;
    add(all.router(i));
    for (int e = 0; e < config.experts.count - config.experts.nulls; ++e) {
      for (auto& group : {all.expert_gate_up(i, e), all.expert_down(i, e)}) {
        auto& added = add(group);
        added.expert = true;
        added.number = e;
      }
    }
    if (config.experts.shared_ffn > 0) {
      add(all.shared_gate_up(i));
      add(all.shared_down(i));
    }
    if (config.experts.shared_gate)
      add(all.shared_gate(i));
  }
  unit = part.end - part.first;
  if (config.has_head())
    add(all.head());
  return groups;
}

kernels::stored_matrix describe(const checkpoint& tensors, const wanted_tensor& wanted) {
  const bool vector = wanted.shape.size() == 1;
  return {nullptr, *weight_format_of(require_tensor(tensors, wanted).type), vector ? 1 : wanted.shape[0],
          wanted.shape.back()};
}

std::vector<kernels::stored_matrix> describe(const checkpoint& tensors, const packed_group& group) {
  std::vector<kernels::stored_matrix> parts;
  for (const auto& w : group.stacked)
    parts.push_back(describe(tensors, w));
  return parts;
}

std::size_t packed_bytes(const checkpoint& tensors, const packed_group& group, precision precision,
                         const kernels::backend& backend) {
  return backend.packed_bytes(describe(tensors, group), precision.compute, group.how, group.gated);
}

bool head_gives_table(const checkpoint& tensors, const model_config& config, precision precision,
                      const kernels::backend& backend) {
  const auto part = config.part();
  if (!config.tied || !part.embeds || !part.heads || !config.has_head() || backend.storable() == nullptr)
    return false;
  const auto group = matrix_groups(config, precision).head();
  return backend.storable()->gives_table(describe(tensors, group.stacked.front()), precision.compute, group.how);
}

packed_contents packed_contents_of(const checkpoint& tensors, const model_config& config, precision precision,
                                   const kernels::backend& backend) {
  const auto& storable = *backend.storable();
  packed_contents contents;
  contents.precision = std::string(kernels::to_string(precision.compute)) + " " + to_string(precision.weights);
  contents.target = kernels::to_string(storable.instruction_set());
  if (storable.shards() > 1)
    contents.target += ", " + std::to_string(storable.shards()) + " ranks";
  if (const auto part = config.part(); config.span)
    contents.target += ", layers " + std::to_string(part.first) + "-" + std::to_string(part.end - 1);
  contents.layout = storable.layout_version();
  for (const auto& group : packed_groups(config, precision))
    contents.matrices.push_back({group.name(), packed_bytes(tensors, group, precision, backend)});
  return contents;
}

namespace {

/// Routers and gates of shared experts, which are never quantised.
bool always_floats(const wanted_tensor& w) {
  return w.name.ends_with(".mlp.gate.weight") || w.name.ends_with(".shared_expert_gate.weight") ||
    w.name.ends_with(".altup.modality_router.weight") || w.name.ends_with("hyper_connection.fn.weight") ||
    w.name.ends_with("hyper_connection_mixer.fn.weight") || w.name.ends_with(".block_inject_weight.weight");
}

} // namespace

std::string unquantised_matrices(const checkpoint& tensors, const model_config& config, precision precision) {
  if (precision.weights == quantization::none)
    return {};
  std::size_t all = 0, floats = 0;
  for (const auto& group : packed_groups(config, precision))
    for (const auto& w : group.stacked) {
      if (always_floats(w))
        continue;
      const auto type = require_tensor(tensors, w).type;
      ++all;
      floats += !has_blocks(type) || is_fp8(type);
    }
  const auto option = std::string("`quantize` ") + to_string(precision.weights);
  if (floats == all)
    return {};
  if (floats == 0)
    return option + " changes nothing: all matrices are in blocks already";
  return option + " is for " + std::to_string(floats) + " of " + std::to_string(all) +
    " matrices: the others are in blocks already";
}

} // namespace troupe
