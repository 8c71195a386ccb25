// What a model's steps must read and compute at least, counted by its shape: a bench judges times by it. Not counted is
// what is small beside it: norms, rotations, embeddings, activations.
#pragma once

#include "runtime/model/weights.hpp"

#include <cstddef>

namespace troupe {

/// All matrices that a token is multiplied with, the logits' included: their bytes as packed, and the multiplications of
/// one token.
struct weight_work {
  std::size_t bytes = 0, multiply_adds = 0;
};
weight_work work_per_token(const model_weights& weights);

/// Bytes of K and V, of all layers, that the attention of a token at position `context` - 1 reads, its own included.
std::size_t kv_bytes_read(const model_config& config, kernels::kv_type type, int context);

/// Of one decode step of `sequences` whose tokens are at position `context` - 1: all matrices once, and the K and V of
/// each sequence.
std::size_t decode_bytes(const model_weights& weights, kernels::kv_type type, int sequences, int context);

/// Of a prompt of so many tokens, of which the last has logits; a multiplication and an addition are two operations. Of
/// attention, what is not masked.
double prefill_operations(const model_config& config, int tokens);

} // namespace troupe
