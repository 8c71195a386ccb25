#include "runtime/model/size_estimate.hpp"

#include "runtime/model/precision.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/model/tensor_names.hpp"

namespace troupe {

std::size_t count_parameters(const model_config& config) {
  std::size_t result = 0;
  for (const auto& wanted : tensor_names(config).all()) {
    std::size_t numbers = 1;
    for (const auto size : wanted.shape)
      numbers *= size;
    result += numbers;
  }
  return result;
}

std::size_t kv_bytes_per_token(const model_config& config, kernels::kv_type type) {
  if (config.cached_layers() == 0)
    return 0;
  const precision how(kernels::dtype::bf16, kernels::quantization::none, type);
  return kv_shape_of(config, how, 1).block_bytes() / kernels::block_tokens;
}

std::size_t state_bytes_per_sequence(const model_config& config) {
  return config.has_states() ? state_shape_of(config, 1, 0, 0).slot_bytes() : 0;
}

} // namespace troupe
