// What a model takes by its configuration alone, as one counts it on paper: parameters times bytes, and K and V of a
// token. Loading adds what steps take (memory_estimate.hpp). Pure.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/model_config.hpp"

#include <cstddef>

namespace troupe {

/// Numbers in all tensors of the model. A head that is the embedding counts once.
std::size_t count_parameters(const model_config& config);

/// Bytes that a token of a sequence has in the KV cache: for each layer that keeps any, K and V of each KV head (of latent
/// attention the latent and the rotated key). Layers with a window keep those of its tokens, too.
std::size_t kv_bytes_per_token(const model_config& config, kernels::kv_type type);

/// Bytes that a sequence has in recurrent layers, however long it is.
std::size_t state_bytes_per_sequence(const model_config& config);

} // namespace troupe
