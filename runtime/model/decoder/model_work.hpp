// Lower bounds of the bytes that a model's steps read and of the operations that they compute, from the shapes of
// matrices. Benches judge times by them. Norms, rotations, embeddings and activations are small and not counted.
#pragma once

#include "runtime/model/decoder/weights.hpp"

#include <cstddef>

namespace troupe {

/// All matrices that a token is multiplied with, including the head: bytes as packed, and multiply-adds per token. Of a
/// mixture, the chosen experts.
struct weight_work {
  std::size_t bytes = 0, multiply_adds = 0;
};
weight_work work_per_token(const model_weights& weights);

/// Bytes of the matrices that a step of `rows` rows reads. Of a mixture, those that some row chooses: the mean if all
/// experts are equally likely, and exactly the chosen ones for one row.
std::size_t weight_bytes_read(const model_weights& weights, int rows);

/// Bytes of K and V over all layers that attention reads for a token at position `context` - 1, its own included.
std::size_t kv_bytes_read(const model_config& config, kernels::kv_type type, int context);

/// Bytes read by one decode step of `sequences`, with tokens at position `context` - 1: all matrices once
/// (weight_bytes_read), and the K and V of each sequence.
std::size_t decode_bytes(const model_weights& weights, kernels::kv_type type, int sequences, int context);

/// Operations of a prompt's prefill, with logits for the last token and without masked attention. A multiply-add counts
/// as two.
double prefill_operations(const model_config& config, int tokens);

} // namespace troupe
