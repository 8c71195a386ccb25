// The memory of a paged KV cache in the layout of the CPU kernels, see layer_cache.
#pragma once

#include "kernels/block_transfer.hpp"
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

  /// See backend::copy_tokens.
  void copy_tokens(int layer, std::span<const token_copy> copies, thread_pool& pool);

  /// Whole blocks in their canonical form.
  void export_blocks(std::span<const block_export> blocks, thread_pool& pool) const;
  void import_blocks(std::span<const block_import> blocks, thread_pool& pool);

private:
  template <class Block, class Move>
  void move_parts(std::span<const Block> blocks, thread_pool& pool, const Move& move) const;

  buffer data_;
};

} // namespace troupe::kernels
