// A model ready to run: its weights, packed for one kind of backend, and the decoder graph over them, written once for
// all families and configured by data. Weights are immutable and lent to any number of executors; a decoder belongs to
// one.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/packed_cache.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/support/types.hpp"

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Told after each part of a load, in bytes as stored. May throw, which cancels the load.
using progress_fn = std::function<void(std::size_t done, std::size_t total)>;

/// Device memory in bytes, known before any is allocated.
struct memory_need {
  std::size_t weights = 0;     // packed, and the embedding table
  std::size_t activations = 0; // for max_rows rows, rope table and what ops take in passing included
  std::size_t kv_block = 0;    // per block of the KV cache
};

/// What a model is computed in.
struct precision {
  kernels::dtype compute = kernels::dtype::f32;                // of activations, and of weights stored as floats
  kernels::quantization weights = kernels::quantization::none; // of those stored as floats; blocks stay as they are

  kernels::kv_type kv = kernels::kv_type::f32; // of the KV cache

  /// K and V in f32 for f32, else in bf16.
  precision(kernels::dtype compute, kernels::quantization weights = kernels::quantization::none)
    : precision(compute, weights, compute == kernels::dtype::f32 ? kernels::kv_type::f32 : kernels::kv_type::bf16) {}
  precision(kernels::dtype compute, kernels::quantization weights, kernels::kv_type kv)
    : compute(compute), weights(weights), kv(kv) {}
};

/// The type to compute in: bf16 for bf16 and for quantised weights, whose own error is larger than bf16's, else f32.
kernels::dtype natural_compute(const checkpoint& tensors, kernels::quantization weights = kernels::quantization::none);

/// The type that most bytes of the matrices will be in: "BF16", "Q4_K", or "int8" where floats are quantised.
std::string weights_kind(const checkpoint& tensors, kernels::quantization weights);

/// A sentence on the matrices that `numbers.weights` does not apply to; empty where there are none.
std::string what_quantisation_leaves(const checkpoint& tensors, const model_config& config, precision numbers);

/// For steps of up to `max_rows` rows, `logit_rows` of them with logits and of as many sequences at most.
memory_need memory_needed(const checkpoint& tensors, const model_config& config, precision numbers,
                          const kernels::backend& backend, int max_rows, int max_context, int logit_rows = 1);

/// The KV cache that a decoder wants.
kernels::kv_shape kv_shape_of(const model_config& config, precision numbers, std::size_t blocks);

/// Names of the tensors that a model is computed from.
std::set<std::string> tensors_used(const model_config& config);

/// Finds every tensor that the configuration asks for, with its shape, and looks at those that it does not ask for
/// (runtime/unused_tensors.hpp). Throws failure(bad_file | unsupported) naming the file, the tensor, what was found and
/// what was expected. Returns what should be told: tensors that are not used, though nothing is wrong without them.
std::vector<std::string> check_tensors(const checkpoint& tensors, const model_config& config);

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
  tensor_data embedding_memory;                     // what `embedding` may refer to
  std::vector<layer_weights> layers;
  kernels::buffer final_norm;
  std::unique_ptr<const kernels::matrix> head; // [vocab, hidden]
  std::size_t bytes = 0;                       // of device memory
};

/// The matrices that `load_weights` packs, with their bytes, and the layout, for a packed_cache; whose model and files it
/// does not know. Only where the backend is a kernels::storable_matrices.
packed_contents packed_contents_of(const checkpoint& tensors, const model_config& config, precision numbers,
                                   const kernels::backend& backend);

/// Checks, reads and packs all weights. What is read is given back before more is read. Where matrices are quantised,
/// the one that makes logits is in int8 at least; the table of embeddings stays as stored.
/// What `cache` has is not read and packed; what it has not is added to it.
/// Throws as `check_tensors` (but unused tensors are not looked at), device_error where memory runs out, and what `progress` throws.
std::shared_ptr<const model_weights> load_weights(const checkpoint& tensors, const model_config& config,
                                                  kernels::backend& backend, precision numbers,
                                                  const progress_fn& progress = {}, packed_cache* cache = nullptr);

/// The decoder graph. Keeps the buffers of its activations, so that a step allocates nothing.
/// The residual stream is f32; what linear ops read is of the compute type; logits are f32.
class decoder {
public:
  /// For steps of up to `max_rows` rows and positions below `max_context`. `backend` must outlive it, be of the kind
  /// that the weights were packed for, and is used by the thread that calls `forward`.
  decoder(std::shared_ptr<const model_weights> weights, kernels::backend& backend, int max_rows, int max_context);

  /// One forward pass over prefill chunks, decode rows and speculative rows alike. `tokens` [rows]; the sequences of
  /// `who` cover the rows in order; the cache holds all earlier positions of theirs. Writes the logits of `logit_rows`
  /// (indices into the rows; may be empty), in their order, to `logits`, f32 [logit_rows, vocab] in device memory.
  /// Throws failure(internal) where the arguments contradict each other or the sizes given at construction.
  void forward(std::span<const token_id> tokens, const kernels::batch& who, std::span<const std::int32_t> logit_rows,
               kernels::kv_cache& cache, const kernels::tensor& logits);

  const model_weights& weights() const { return *weights_; }
  int max_rows() const { return max_rows_; }
  int max_context() const { return max_context_; }

private:
  void check(std::span<const token_id> tokens, const kernels::batch& who, std::span<const std::int32_t> logit_rows,
             const kernels::kv_cache& cache, const kernels::tensor& logits) const;

  std::shared_ptr<const model_weights> weights_;
  kernels::backend& backend_;
  int max_rows_;
  int max_context_;
  kernels::buffer rope_;     // [max_context, head_dim]
  kernels::buffer residual_; // [max_rows, hidden], f32
  kernels::buffer normed_;   // [max_rows, hidden], compute type
  kernels::buffer qkv_;      // [max_rows, (heads + 2 kv_heads) * head_dim], f32
  kernels::buffer attended_; // [max_rows, heads * head_dim], compute type
  kernels::buffer ffn_;      // [max_rows, ffn], compute type
};

} // namespace troupe
