#include "runtime/model/decoder/mtp_layers.hpp"

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/model/families/family.hpp"
#include "runtime/model/packing.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

constexpr std::string_view token_norm = "enorm.weight", state_norm = "hnorm.weight", joined = "eh_proj.weight",
                           final_norm = "shared_head.norm.weight";
constexpr int most_layers = 4; // of one prediction

std::string layer_prefix(int layer) { return "model.layers." + std::to_string(layer) + "."; }

bool begins(const checkpoint& stored, const std::string& prefix) {
  return std::ranges::any_of(stored.tensors(), [&](const std::string& name) { return name.starts_with(prefix); });
}

/// Qwen's names beside the layer's own.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> qwen_names{{
  {"mtp.fc.weight", joined},
  {"mtp.norm.weight", final_norm},
  {"mtp.pre_fc_norm_embedding.weight", token_norm},
  {"mtp.pre_fc_norm_hidden.weight", state_norm},
}};

wanted_tensor norm_of(const mtp_layers& of, std::string_view name) {
  return {layer_prefix(of.config.part().first) + std::string(name), {as_size(of.config.hidden)}};
}

packed_group joined_group(const mtp_layers& of, precision precision) {
  const auto hidden = as_size(of.config.hidden);
  packed_group group;
  group.stacked = {{layer_prefix(of.config.part().first) + std::string(joined), {hidden, 2 * hidden}}};
  group.how = precision.weights;
  return group;
}

/// Extends what is said of each layer, where it is said.
template <class List, class Value>
void extend(List& of_layers, Value value) {
  if (!of_layers.empty())
    of_layers.push_back(value);
}

void add_layer(model_config& config, layer_parts parts, bool sparse, bool unrotated) {
  ++config.layers;
  config.windows.push_back(0);
  extend(config.chunks, 0);
  extend(config.unrotated, unrotated);
  extend(config.ffns, config.ffn);
  extend(config.parts, parts);
  extend(config.sparse, sparse);
}

} // namespace

std::unique_ptr<const checkpoint> rename_mtp_layers(std::unique_ptr<const checkpoint> stored,
                                                    const model_config& model) {
  const bool parted = has_trait(model, family::parts_predict);
  if (!stored->find("mtp.fc.weight") && !(parted && stored->find("mtp.layers.0.eh_proj.weight")))
    return stored;
  arrangement how;
  const auto first = layer_prefix(model.layers);
  for (const auto& [name, presented] : qwen_names)
    how.names.emplace(name, first + std::string(presented));
  const bool bare = stored->find("backbone.layers.0.norm.weight") != nullptr;
  for (int i = 0; i < most_layers; ++i) {
    const auto own = "mtp.layers." + std::to_string(i) + ".";
    if (parted) {
      for (const auto name : {token_norm, state_norm, joined})
        how.names.emplace(own + std::string(name), first + std::string(name));
      how.names.emplace(own + "final_layernorm.weight", first + std::string(final_norm));
    }
    how.prefixes.emplace_back(own,
                              (bare ? "backbone.layers." : "model.layers.") + std::to_string(model.layers + i) + ".");
  }
  return arrange(std::move(stored), how);
}

std::optional<mtp_layers> find_mtp_layers(const checkpoint& stored, const model_config& model, bool of_gguf) {
  if (model.span || model.indexer || model.encoder || model.headless || model.layer_inputs > 0 ||
      !model.kv_layers.empty() || model.norm != norm_type::rms ||
      !stored.find(layer_prefix(model.layers) + std::string(joined)))
    return std::nullopt;
  mtp_layers found{.config = model};
  const bool parted = has_trait(model, family::parts_predict), alone = parted && !of_gguf;
  const auto layer_has = [&](int layer, std::initializer_list<const char*> names) {
    for (const auto& stem : {"model.layers.", "backbone.layers."})
      for (const auto* name : names)
        if (begins(stored, stem + std::to_string(layer) + "." + name))
          return true;
    return false;
  };
  const int first = model.layers;
  bool routed = !alone && layer_has(first, {"mlp.experts.", "mlp.gate.", "block_sparse_moe."});
  if (!alone)
    add_layer(found.config, {}, routed, parted);
  for (int i = first; alone && i < first + most_layers; ++i) {
    const bool attends = layer_has(i, {"mixer.q_proj.", "self_attn.q_proj."}),
               sparse = layer_has(i, {"mixer.experts.", "mixer.gate.", "mlp.experts.", "mlp.gate."});
    if (!attends && !sparse && !layer_has(i, {"mixer.up_proj.", "mlp.up_proj."}))
      break;
    routed = routed || sparse;
    add_layer(found.config, {.attention = attends, .recurrence = false, .mlp = !attends}, sparse, true);
  }
  if (found.config.layers == first || (routed && found.config.sparse.empty()))
    return std::nullopt;
  found.norm_offset = has_trait(model, family::shifted_predict) && !of_gguf ? 1.0f : 0.0f;
  found.chains_norm = has_trait(model, family::chained_predict);
  found.config.span = layer_span{first, found.config.layers, false, false};
  return found;
}

model_config with_mtp_layers(const model_config& model, const std::optional<mtp_layers>& layers) {
  if (!layers)
    return model;
  auto all = layers->config;
  all.span.reset();
  return all;
}

std::shared_ptr<const mtp_weights> load_mtp_weights(const checkpoint& tensors, const mtp_layers& layers,
                                                    kernels::backend& backend, precision precision,
                                                    const progress_fn& progress) {
  auto weights = std::make_shared<mtp_weights>();
  weights->layers = load_weights(tensors, layers.config, backend, precision, progress);
  weights->chains_norm = layers.chains_norm;
  weights->bytes = weights->layers->bytes;
  const auto norm = [&](std::string_view name) {
    const auto wanted = norm_of(layers, name);
    const auto& info = require_tensor(tensors, wanted);
    std::vector<float> values(wanted.shape[0]);
    to_floats(*weight_format_of(info.type), tensors.read(wanted.name).get(), values.size(), values.data());
    for (float& v : values)
      v += layers.norm_offset;
    weights->bytes += values.size() * sizeof(float);
    return norm_weights{backend.upload(values), nullptr};
  };
  weights->token_norm = norm(token_norm);
  weights->state_norm = norm(state_norm);
  weights->final_norm = norm(final_norm);
  const auto group = joined_group(layers, precision);
  auto parts = describe(tensors, group);
  const auto data = tensors.read(group.name());
  parts.front().data = data.get();
  weights->joined = backend.pack(parts, precision.compute, group.how);
  weights->bytes += weights->joined->bytes;
  return weights;
}

std::vector<wanted_tensor> tensors_around(const mtp_layers& layers) {
  return {norm_of(layers, token_norm), norm_of(layers, state_norm),
          joined_group(layers, kernels::dtype::f32).stacked.front(), norm_of(layers, final_norm)};
}

bool has_all(const checkpoint& tensors, const mtp_layers& layers) {
  auto wanted = tensor_names(layers.config).all();
  std::ranges::copy(tensors_around(layers), std::back_inserter(wanted));
  return std::ranges::all_of(wanted, [&](const wanted_tensor& w) {
    const auto* info = tensors.find(w.name);
    return info && info->shape == w.shape && weight_format_of(info->type);
  });
}

std::size_t mtp_weight_bytes(const checkpoint& tensors, const mtp_layers& layers, precision precision,
                             const kernels::backend& backend) {
  return packed_bytes(tensors, joined_group(layers, precision), precision, backend) +
    3 * as_size(layers.config.hidden) * sizeof(float);
}

std::set<std::string> tensors_used(const mtp_layers& layers) {
  auto used = tensors_used(layers.config);
  const auto first = layer_prefix(layers.config.part().first);
  for (const auto name : {token_norm, state_norm, joined, final_norm, std::string_view("shared_head.head.weight"),
                          std::string_view("embed_tokens.weight")})
    used.insert(first + std::string(name));
  return used;
}

} // namespace troupe
