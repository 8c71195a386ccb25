#include "runtime/model/precision.hpp"

#include "kernels/activation_sparsity.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace troupe {

using kernels::dtype;
using kernels::quantization;

dtype natural_compute(const checkpoint& tensors, quantization weights, bool f16_as_bf16) {
  const auto* table = tensors.find("model.embed_tokens.weight");
  const auto in_blocks = [&](const std::string& name) {
    const auto type = tensors.find(name)->type;
    return has_blocks(type) && !is_pruned(*type.format());
  };
  const auto narrow = [&](tensor_type type) {
    return type == tensor_type::bf16 || (f16_as_bf16 && type == tensor_type::f16);
  };
  const bool coarse = weights != quantization::none || (table && narrow(table->type)) ||
    std::ranges::any_of(tensors.tensors(), in_blocks);
  return coarse ? dtype::bf16 : dtype::f32;
}

void check_sparsity(const checkpoint& tensors, const model_config& config, const kernels::backend& backend,
                    const precision& precision) {
  const auto refuse = [](const std::string& why) { throw failure(errc::unsupported, "`sparsity` " + why, "sparsity"); };
  if (precision.attention_threshold > 0 && dynamic_cast<const kernels::activation_sparsity*>(&backend) == nullptr)
    refuse_field("attention_threshold",
                 "needs the CPU (--device cpu): " + backend.description() + " leaves out no weights",
                 errc::unsupported);
  if (precision.attention_threshold > 0 && (config.indexer || config.compressed))
    refuse_field("attention_threshold",
                 "is not for models of the family `" + config.family + "`, whose attention sees chosen positions alone",
                 errc::unsupported);
  if (!precision.sparsity)
    return;
  if (dynamic_cast<const kernels::activation_sparsity*>(&backend) == nullptr)
    refuse("needs the CPU (--device cpu): " + backend.description() + " skips no weights");
  if (config.experts.count > 0)
    refuse("is not for mixtures of experts, of which this model has " + std::to_string(config.experts.count));
  if (config.shared_blocks)
    refuse("is not for models of the family `" + config.family + "`, whose layers share an MLP");
  if (precision.weights == quantization::int8 || precision.weights == quantization::int4)
    refuse(std::string("skips nothing in weights that are quantised to ") + to_string(precision.weights) +
           ": their inputs are rounded in groups");
  const tensor_names names(config);
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!config.parts_of(layer).mlp)
      continue;
    for (const auto& matrices : {names.gate_up(layer), names.down(layer)})
      for (const auto& wanted : matrices)
        if (const auto& found = require_tensor(tensors, wanted); has_blocks(found.type) && !is_fp8(found.type))
          refuse("skips nothing in weights in blocks, as " + wanted.name + " is in " +
                 std::string(to_string(found.type)) + ": their inputs are rounded in groups");
  }
}

std::string weights_kind(const checkpoint& tensors, quantization weights) {
  // Counts numbers, not bytes: an embedding in bf16 may take more bytes than all matrices of 4 bits.
  std::map<tensor_type, double> numbers;
  for (const auto& name : tensors.tensors())
    if (const auto* info = tensors.find(name); info->shape.size() > 1)
      numbers[info->type] += std::accumulate(info->shape.begin(), info->shape.end(), 1., std::multiplies<>());
  const auto most = std::ranges::max_element(numbers, {}, [](const auto& entry) { return entry.second; });
  if (most == numbers.end())
    return "none";
  if (has_blocks(most->first) || weights == quantization::none)
    return std::string(to_string(most->first));
  return to_string(weights);
}

kernels::kv_shape kv_shape_of(const model_config& config, precision precision, std::size_t blocks) {
  // Without any attention, blocks are there to count what is cached.
  kernels::kv_shape shape{std::max(1, config.cached_layers()), config.kv_heads, config.head_dim, precision.kv, blocks};
  if (config.cached_layers() == 0 ||
      (config.kv_layers.empty() && config.local_head_dim == 0 && config.local_kv_heads == 0 &&
       config.full_kv_heads == 0 && !config.indexer && !config.compressed))
    return shape;
  shape.layers = 0;
  for (int i = config.part().first; i < config.part().end; ++i)
    if (config.has_kv(i)) {
      shape.own.push_back({config.kv_heads_of(i), config.head_dim_of(i), !config.compressed});
      ++shape.layers;
    }
  for (int i = config.part().first; i < config.part().end; ++i)
    if (config.indexes(i)) {
      shape.own.push_back({1, config.indexer.dim, false});
      ++shape.layers;
    }
  for (int i = config.part().first; config.compressed && i < config.part().end; ++i) // see entry_layer_of
    if (config.compressed.rates[as_size(i)] > 0) {
      const int heads = config.indexes(i) ? 2 : 1;
      shape.own.push_back({1, config.head_dim, false});
      shape.own.push_back({heads, config.head_dim});
      if (config.indexes(i))
        shape.own.push_back({heads, config.indexer.dim});
      shape.layers = static_cast<int>(shape.own.size());
    }
  return shape;
}

} // namespace troupe
