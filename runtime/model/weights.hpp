// A model's weights, packed for one kind of backend. Immutable, and lent to any number of executors.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/packed_cache.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/precision.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace troupe {

/// Called after each part of a load, in bytes as stored. May throw, which cancels the load.
using progress_fn = std::function<void(std::size_t done, std::size_t total)>;

struct layer_weights {
  std::unique_ptr<const kernels::matrix> qkv; // [(heads + 2 kv_heads) * head_dim, hidden]
  std::unique_ptr<const kernels::matrix> o;   // [hidden, heads * head_dim]
  std::unique_ptr<const kernels::matrix> gate_up;
  std::unique_ptr<const kernels::matrix> down;               // [hidden, ffn]
  kernels::buffer input_norm, post_norm;                     // [hidden]
  kernels::buffer q_norm, k_norm;                            // [head_dim], or null
  kernels::buffer qkv_bias, o_bias, gate_up_bias, down_bias; // or null
};

struct model_weights {
  model_config config;
  kernels::dtype compute = kernels::dtype::f32;
  std::unique_ptr<const kernels::matrix> embedding; // [vocab, hidden]
  tensor_data embedding_memory;                     // `embedding` may refer to it
  std::vector<layer_weights> layers;
  kernels::buffer final_norm;
  std::unique_ptr<const kernels::matrix> head; // [vocab, hidden]
  std::size_t bytes = 0;                       // of device memory
};

/// Checks, reads and packs all weights, and frees what it has read before it reads more. Where matrices are quantised,
/// the one that makes logits is in int8 at least; the embedding table stays as stored. Matrices in `cache` are neither
/// read nor packed; the others are added to it. Throws as `require_tensor` (unused tensors are not looked at),
/// device_error where memory runs out, and what `progress` throws.
std::shared_ptr<const model_weights> load_weights(const checkpoint& tensors, const model_config& config,
                                                  kernels::backend& backend, precision precision,
                                                  const progress_fn& progress = {}, packed_cache* cache = nullptr);

} // namespace troupe
