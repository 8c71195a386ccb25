// Moves blocks of a KV cache out of it and back: to host memory, to another cache, to a file.
//
// Blocks outside a cache have a canonical form: layer by layer, KV head by KV head, K of the block's 16 tokens, then V,
// each with its scales where the type has any; kv_shape::block_bytes in all. A block is contiguous in this form,
// whatever the layout of a cache's memory, and any range of layers is a part of it. Within K and V of a head, elements
// are arranged as the backend's kernels read them (CUDA: scales behind both). So only equal backends with equal
// instruction sets and types understand each other's blocks (runtime/kv/numerics_id.hpp).
#pragma once

#include "kernels/ops.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::kernels {

/// The version of the form above.
inline constexpr int block_form_version = 1;

/// A block, and `block_bytes` bytes of host memory that it goes to.
struct block_export {
  std::int32_t block = 0;
  void* to = nullptr;
};

struct block_import {
  const void* from = nullptr;
  std::int32_t block = 0;
};

/// Beside the op interface, for backends that can: dynamic_cast<block_transfer*>(&backend). Calls return when the bytes
/// are there; they come behind the ops called before, and ahead of those called later. Throw std::invalid_argument for
/// blocks that the cache does not have.
class block_transfer {
public:
  virtual ~block_transfer() = default;

  virtual void export_blocks(const kv_cache& cache, std::span<const block_export> blocks) = 0;

  /// No block twice.
  virtual void import_blocks(kv_cache& cache, std::span<const block_import> blocks) = 0;
};

} // namespace troupe::kernels
