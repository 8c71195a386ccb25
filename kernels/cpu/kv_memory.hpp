// The memory of a paged KV cache in the layout of the CPU kernels, see layer_cache.
#pragma once

#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/target.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

#include <span>

namespace troupe::kernels {

class cpu_kv_cache : public kv_cache {
public:
  /// Throws std::invalid_argument for a shape that the CPU kernels do not take.
  explicit cpu_kv_cache(const kv_shape& wanted);

  layer_cache layer(int index) const;

  /// Copies whole blocks, K and V of all layers, in order.
  void copy(std::span<const block_copy> copies, thread_pool& pool);

private:
  buffer data_;
};

} // namespace troupe::kernels
