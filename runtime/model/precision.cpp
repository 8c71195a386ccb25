#include "runtime/model/precision.hpp"

#include <algorithm>
#include <map>

namespace troupe {

using kernels::dtype;
using kernels::quantization;

dtype natural_compute(const checkpoint& tensors, quantization weights, bool f16_as_bf16) {
  const auto* table = tensors.find("model.embed_tokens.weight");
  const auto in_blocks = [&](const std::string& name) { return has_blocks(tensors.find(name)->type); };
  const auto narrow = [&](tensor_type type) {
    return type == tensor_type::bf16 || (f16_as_bf16 && type == tensor_type::f16);
  };
  const bool coarse = weights != quantization::none || (table && narrow(table->type)) ||
    std::ranges::any_of(tensors.tensors(), in_blocks);
  return coarse ? dtype::bf16 : dtype::f32;
}

std::string weights_kind(const checkpoint& tensors, quantization weights) {
  std::map<tensor_type, std::size_t> bytes;
  for (const auto& name : tensors.tensors())
    if (const auto* info = tensors.find(name); info->shape.size() > 1)
      bytes[info->type] += info->bytes;
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  if (most == bytes.end())
    return "none";
  if (has_blocks(most->first) || weights == quantization::none)
    return std::string(to_string(most->first));
  return to_string(weights);
}

kernels::kv_shape kv_shape_of(const model_config& config, precision precision, std::size_t blocks) {
  return {config.layers, config.kv_heads, config.head_dim, precision.kv, blocks};
}

} // namespace troupe
