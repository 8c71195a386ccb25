// How much device memory the ops' scratch grows to, by the sizes that the ops themselves ask for. Pure, on the host.
#pragma once

#include "kernels/cuda/weights.hpp"
#include "kernels/planned_memory.hpp"

#include <algorithm>

namespace troupe::kernels::cuda {

/// Bytes of attention's partial states at a time, unless one row alone has more.
inline constexpr std::size_t state_memory = std::size_t(256) << 20;

/// Rows of a product that is kept in f32 before it is gated or scaled, at a time.
inline constexpr std::size_t product_scratch_rows = 1024;

/// Steps whose inputs are on their way or in use at a time.
inline constexpr std::size_t step_stagings = 3;

/// Rows of a product at a time where products pass through memory before they are finished: pieces of similar size.
constexpr std::size_t rows_at_once(std::size_t rows) {
  const std::size_t pieces = std::max<std::size_t>(1, (rows + product_scratch_rows - 1) / product_scratch_rows);
  return (rows + pieces - 1) / pieces;
}

/// Bytes of a tile's weights in bf16.
std::size_t expanded_tile_bytes(const weight_part& part);

/// Tiles of a part that are expanded to bf16 at a time, in pieces of similar size: as many as `expanded_memory` bytes
/// have room for, or one.
std::size_t expanded_tiles(const weight_part& part, std::size_t expanded_memory);

/// See planned_memory. `library`: there is one, and it is used.
std::size_t scratch_bytes(const planned_steps& steps, bool library, std::size_t expanded_memory);

} // namespace troupe::kernels::cuda
