// Computes how much device memory a model and its steps take, before any is allocated. The benches and the engine's
// plan read the same estimate (runtime/execution/device.hpp adds what runners and samplers take).
#pragma once

#include "kernels/ops.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/model/precision.hpp"

#include <cstddef>

namespace troupe {

/// Bytes of device memory.
struct memory_estimate {
  std::size_t weights = 0;        // packed, and the embedding table
  std::size_t activations = 0;    // of a decoder
  std::size_t scratch = 0;        // of ops, logits and sampling
  std::size_t kv_block = 0;       // one block of the KV cache, of a group of GPUs in the one that has the most of it
  std::size_t kv_whole = 0;       // one block in all of them
  std::size_t state = 0;          // of recurrent layers: one snapshot
  std::size_t sequence_state = 0; // the state of a sequence, with what it may take back
  std::size_t packed = 0;         // of weights: the matrices that a file can keep

  /// Everything but weights and KV cache.
  std::size_t steps() const { return activations + scratch; }
  /// Everything but the KV cache.
  std::size_t fixed() const { return weights + steps(); }

  memory_estimate& operator+=(const memory_estimate& more) {
    weights += more.weights;
    activations += more.activations;
    scratch += more.scratch;
    kv_block += more.kv_block;
    kv_whole += more.kv_whole;
    state += more.state;
    sequence_state += more.sequence_state;
    packed += more.packed;
    return *this;
  }
};

/// The largest steps of a decoder.
struct decoder_steps {
  int rows = 1;
  int logit_rows = 1; // rows with logits, and sequences; cut to `rows`
  int context = 1;    // tokens of the longest sequence
};

/// A decoder's memory; logits are its caller's. Throws as `require_tensor`.
memory_estimate estimate_memory(const checkpoint& tensors, const model_config& config, precision precision,
                                const kernels::backend& backend, const decoder_steps& steps);

} // namespace troupe
