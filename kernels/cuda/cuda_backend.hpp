// The CUDA backend: the op interface on one NVIDIA GPU, over a stream of its own. Every op queues its work and returns;
// only `download` and what allocates wait. Beyond the interface, what an executor on a GPU needs: block moves to and
// from host memory, its stream, sampling on the device (sampling.hpp). Used by one thread, which selected the device.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/ops.hpp"

#include <memory>

namespace troupe::kernels::cuda {

struct cuda_options {
  int device = 0;
  /// Fixed kernels and splits, so that a row's bits do not depend on the other rows; slower for long chunks and many
  /// rows.
  bool deterministic = false;
};

class cuda_backend : public backend {
public:
  virtual const stream& queue() const = 0;
  virtual bool deterministic() const = 0;

  /// One block, K and V of all layers, to or from `host` (block_bytes of its cache's shape; pinned, to be
  /// asynchronous).
  virtual void save_block(const kv_cache& cache, std::int32_t block, void* host) = 0;
  virtual void restore_block(kv_cache& cache, std::int32_t block, const void* host) = 0;
};

/// Throws device_error where there is no such device. Unlike the CPU, it multiplies quantised weights with activations
/// as they are (bf16) and rounds only the sums, or, where many rows go through the library, the weights to bf16. With
/// f32 activations quantised weights are expanded at load.
std::unique_ptr<cuda_backend> make_cuda_backend(const cuda_options& options = {});

} // namespace troupe::kernels::cuda
