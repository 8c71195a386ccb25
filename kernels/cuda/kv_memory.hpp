// The memory of a KV cache on one GPU, and copies of its blocks: within it, to host memory and back.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/rope.hpp"
#include "kernels/cuda/device_scratch.hpp"
#include "kernels/ops.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::kernels::cuda {

class device_kv_cache : public kv_cache {
public:
  explicit device_kv_cache(const kv_shape& wanted);

  layer_cache layer(int index) const;

  /// Queues the copies as if one ran after another. `list`: scratch memory of this stream.
  void copy(const stream& on, device_scratch& list, std::span<const block_copy> copies) const;
  void save(const stream& on, std::int32_t block, void* host) const;
  void restore(const stream& on, std::int32_t block, const void* host) const;

private:
  /// Layers whose blocks are alike: all, or each on its own.
  struct alike {
    int first, count;
    std::size_t block_bytes, layer_bytes;
  };

  std::vector<alike> layers() const;
  /// [layers][blocks], then as in kv_layout.hpp.
  unsigned char* data(int layer) const;
  unsigned char* address(const alike& layers, std::int32_t block) const;
  void copy_together(const stream& on, device_scratch& list, std::span<const block_copy> copies) const;

  buffer data_;
};

} // namespace troupe::kernels::cuda
