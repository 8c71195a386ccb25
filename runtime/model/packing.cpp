#include "runtime/model/packing.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/model/recurrent_layers.hpp"

namespace troupe {

using kernels::quantization;

packed_group qkv_group(const tensor_names& names, int layer, precision precision) {
  return {names.qkv(layer), precision.weights};
}

packed_group o_group(const tensor_names& names, int layer, precision precision) {
  return {names.o(layer), precision.weights};
}

namespace {

quantization int8_at_least(precision precision) {
  const bool floats = precision.weights == quantization::none || precision.weights == quantization::bf16;
  return floats ? precision.weights : quantization::int8;
}

} // namespace

packed_group recurrent_in_group(const tensor_names& names, int layer, precision precision) {
  return {recurrent_tensors(names.config(), layer).in(), int8_at_least(precision)};
}

packed_group recurrent_rate_group(const tensor_names& names, int layer, precision precision) {
  return {{recurrent_tensors(names.config(), layer).rate_up()}, int8_at_least(precision)};
}

packed_group recurrent_gate_group(const tensor_names& names, int layer, precision precision) {
  return {{recurrent_tensors(names.config(), layer).gate_up()}, int8_at_least(precision)};
}

packed_group recurrent_parts_group(const tensor_names& names, int layer, precision precision) {
  return {{recurrent_tensors(names.config(), layer).parts()}, int8_at_least(precision)};
}

packed_group recurrent_out_group(const tensor_names& names, int layer, precision precision) {
  return {{recurrent_tensors(names.config(), layer).out()}, precision.weights};
}

packed_group latent_q_group(const tensor_names& names, int layer, precision precision) {
  return {{names.latent_q(layer)}, precision.weights};
}

packed_group latent_key_group(const tensor_names& names, int layer, int head, precision precision) {
  return {{names.latent_key(layer, head)}, int8_at_least(precision)};
}

packed_group latent_value_group(const tensor_names& names, int layer, int head, precision precision) {
  return {{names.latent_value(layer, head)}, int8_at_least(precision)};
}

packed_group index_q_group(const tensor_names& names, int layer, precision precision) {
  return {{names.index_q(layer)}, int8_at_least(precision)};
}

packed_group index_key_group(const tensor_names& names, int layer, precision precision) {
  return {{names.index_key(layer)}, int8_at_least(precision)};
}

packed_group index_weights_group(const tensor_names& names, int layer) {
  return {{names.index_weights(layer)}, quantization::none};
}

packed_group layer_projection_group(const tensor_names& names, precision precision) {
  return {{names.layer_projection()}, int8_at_least(precision)};
}

packed_group input_gate_group(const tensor_names& names, int layer, precision precision) {
  return {{names.input_gate(layer)}, int8_at_least(precision)};
}

packed_group input_projection_group(const tensor_names& names, int layer, precision precision) {
  return {{names.input_projection(layer)}, int8_at_least(precision)};
}

packed_group altup_in_group(const tensor_names& names, int stream, precision precision) {
  return {{names.altup_in(stream)}, int8_at_least(precision)};
}

packed_group altup_out_group(const tensor_names& names, int stream, precision precision) {
  return {{names.altup_out(stream)}, int8_at_least(precision)};
}

packed_group altup_router_group(const tensor_names& names, int layer) {
  return {{names.altup_router(layer)}, quantization::none};
}

packed_group laurel_down_group(const tensor_names& names, int layer, precision precision) {
  return {{names.laurel(layer).front()}, int8_at_least(precision)};
}

packed_group laurel_up_group(const tensor_names& names, int layer, precision precision) {
  return {{names.laurel(layer).back()}, int8_at_least(precision)};
}

namespace {

/// gate and up, or up alone.
packed_group gate_up(std::vector<wanted_tensor> stacked, precision precision) {
  const bool gated = stacked.size() == 2;
  return {std::move(stacked), precision.weights, gated};
}

} // namespace

packed_group gate_up_group(const tensor_names& names, int layer, precision precision) {
  auto group = gate_up(names.gate_up(layer), precision);
  group.gated = group.gated && !names.config().cuts_gates(layer); // else gates are looked at before they count
  return group;
}

packed_group router_group(const tensor_names& names, int layer) { return {{names.router(layer)}, quantization::none}; }

packed_group expert_gate_up_group(const tensor_names& names, int layer, int expert, precision precision) {
  return gate_up(names.expert_gate_up(layer, expert), precision);
}

packed_group expert_down_group(const tensor_names& names, int layer, int expert, precision precision) {
  return {names.expert_down(layer, expert), precision.weights};
}

packed_group shared_gate_up_group(const tensor_names& names, int layer, precision precision) {
  return gate_up(names.shared_gate_up(layer), precision);
}

packed_group shared_down_group(const tensor_names& names, int layer, precision precision) {
  return {names.shared_down(layer), precision.weights};
}

packed_group shared_gate_group(const tensor_names& names, int layer) {
  return {{names.shared_gate(layer)}, quantization::none};
}

packed_group down_group(const tensor_names& names, int layer, precision precision) {
  return {names.down(layer), precision.weights};
}

packed_group head_group(const tensor_names& names, precision precision) {
  return {{names.head()}, int8_at_least(precision)};
}

std::vector<packed_group> packed_groups(const model_config& config, precision precision) {
  const tensor_names names(config);
  const auto part = config.part();
  std::vector<packed_group> groups;
  int unit = 0;
  const auto add = [&](packed_group group) -> packed_group& {
    group.unit = unit;
    return groups.emplace_back(std::move(group));
  };
  if (config.layer_inputs > 0)
    add(layer_projection_group(names, precision));
  for (int i = 1; i < config.altup.streams; ++i)
    add(altup_in_group(names, i, precision));
  for (int i = part.first; i < part.end; ++i) {
    const auto parts = config.parts_of(i);
    unit = i - part.first;
    if (parts.recurrence) {
      add(recurrent_in_group(names, i, precision));
      add(recurrent_out_group(names, i, precision));
      if (recurrent_tensors(config, i).has_rate_up())
        add(recurrent_rate_group(names, i, precision));
      if (recurrent_tensors(config, i).has_gate_up())
        add(recurrent_gate_group(names, i, precision));
      if (config.recurrent.type == recurrent_type::selective)
        add(recurrent_parts_group(names, i, precision));
    }
    if (parts.attention) {
      add(qkv_group(names, i, precision));
      add(o_group(names, i, precision));
      if (config.latent.q_rank > 0)
        add(latent_q_group(names, i, precision));
      for (int h = 0; config.latent && h < config.heads; ++h) {
        add(latent_key_group(names, i, h, precision));
        add(latent_value_group(names, i, h, precision));
      }
      if (config.indexes(i)) {
        add(index_q_group(names, i, precision));
        add(index_key_group(names, i, precision));
        add(index_weights_group(names, i));
      }
    }
    if (config.layer_inputs > 0) {
      add(input_gate_group(names, i, precision));
      add(input_projection_group(names, i, precision));
    }
    if (config.altup) {
      add(altup_router_group(names, i));
      add(laurel_down_group(names, i, precision));
      add(laurel_up_group(names, i, precision));
    }
    for (int s = 1; s < config.altup.streams && i + 1 == part.end; ++s)
      add(altup_out_group(names, s, precision));
    if (!parts.mlp)
      continue;
    if (!config.is_sparse(i) || config.experts.shortcut) {
      add(gate_up_group(names, i, precision));
      add(down_group(names, i, precision));
    }
    if (!config.is_sparse(i))
      continue;
    add(router_group(names, i));
    for (int e = 0; e < config.experts.count - config.experts.nulls; ++e) {
      for (auto& group : {expert_gate_up_group(names, i, e, precision), expert_down_group(names, i, e, precision)}) {
        auto& added = add(group);
        added.expert = true;
        added.number = e;
      }
    }
    if (config.experts.shared_ffn > 0) {
      add(shared_gate_up_group(names, i, precision));
      add(shared_down_group(names, i, precision));
    }
    if (config.experts.shared_gate)
      add(shared_gate_group(names, i));
  }
  unit = part.end - part.first;
  if (config.has_head())
    add(head_group(names, precision));
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
  const tensor_names names(config);
  const auto group = head_group(names, precision);
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
    w.name.ends_with(".altup.modality_router.weight");
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
      floats += !has_blocks(type) || type == tensor_type::fp8;
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
