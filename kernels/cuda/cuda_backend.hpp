// The CUDA backend: the op interface on one NVIDIA GPU, over a stream of its own. Every op queues its work and returns;
// only `download` and what allocates wait. Beyond the interface, what an executor on a GPU needs: a second stream for
// copies, a step's inputs uploaded ahead on it, block moves to and from host memory; sampling is apart (sampling.hpp).
// Used by one thread, which selected the device.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/ops.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace troupe::kernels::cuda {

struct cuda_options {
  int device = 0;
  /// Fixed kernels and splits, so that a row's bits do not depend on the other rows; slower for long chunks and many
  /// rows.
  bool deterministic = false;
  /// A number near which a model's attention scores are: partitions' sums of exponentials then are relative to it, not to
  /// their own largest score. Rows whose scores are too far from it (40) are computed twice. None: off.
  std::optional<float> unified_maximum = {};
  /// Bytes of quantised weights that are expanded at a time, where they go through the library.
  std::size_t expanded_memory = std::size_t(128) << 20;
};

/// What a forward pass reads from the host.
struct step_inputs {
  std::span<const std::int32_t> tokens; // [rows]; -1 - s: the token that is in slot s when the step begins
  batch rows;
  std::span<const std::int32_t> logit_rows;
  bool repeatable = false; // plan so that steps like it can replay its launches
};

class cuda_backend : public backend {
public:
  /// Of the ops, and of copies beside them.
  virtual const stream& queue() const = 0;
  virtual const stream& copy_queue() const = 0;
  virtual bool deterministic() const = 0;

  /// Queues the upload of a step's inputs on the copy stream; all ops of the step before have been called. Those that
  /// follow, with the same batch, the same rows and the same tokens (0 for those in slots), find them there.
  virtual void stage(const step_inputs& inputs) = 0;

  /// Begins the step that was staged, on the stream of the ops. `slot_tokens`: device memory.
  virtual void begin_step(const std::int32_t* slot_tokens) = 0;

  /// Two staged steps of the same shape make the same launches with the same arguments, as long as `memory_moves` stays
  /// the same. Empty: the step's cannot be repeated.
  virtual std::vector<std::uint64_t> launch_shape() const = 0;
  virtual std::uint64_t memory_moves() const = 0;

  /// One block, K and V of all layers, to or from `host` (block_bytes of its cache's shape; pinned, to be
  /// asynchronous).
  virtual void save_block(const stream& on, const kv_cache& cache, std::int32_t block, void* host) = 0;
  virtual void restore_block(const stream& on, kv_cache& cache, std::int32_t block, const void* host) = 0;

  /// `copy_blocks` on another stream.
  virtual void copy_blocks_on(const stream& on, kv_cache& cache, std::span<const block_copy> copies) = 0;
};

/// Throws device_error where there is no such device. Unlike the CPU, it multiplies quantised weights with activations
/// as they are (bf16) and rounds only the sums, or, where many rows go through the library, the weights to bf16. With
/// f32 activations quantised weights are expanded at load.
std::unique_ptr<cuda_backend> make_cuda_backend(const cuda_options& options = {});

} // namespace troupe::kernels::cuda
