// Predicts the scratch memory of the ops from the same sizes that the ops reserve. Pure; runs on the host.
#pragma once

#include "kernels/cuda/weights.hpp"
#include "kernels/planned_steps.hpp"

#include <algorithm>

namespace troupe::kernels::cuda {

/// Bytes of attention states at a time. A single row may exceed it.
inline constexpr std::size_t state_memory = std::size_t(256) << 20;

/// Bytes of an indexer's scores at a time. A single row may exceed it.
inline constexpr std::size_t score_memory = std::size_t(64) << 20;

/// Largest number of rows of a product that is kept in scratch memory, in f32, until it is gated or scaled.
inline constexpr std::size_t product_scratch_rows = 1024;

/// Steps whose inputs are being uploaded or in use at a time.
inline constexpr std::size_t step_stagings = 3;

/// Rows of such a product at a time: pieces of similar size.
constexpr std::size_t rows_at_once(std::size_t rows) {
  const std::size_t pieces = std::max<std::size_t>(1, (rows + product_scratch_rows - 1) / product_scratch_rows);
  return (rows + pieces - 1) / pieces;
}

/// Bytes of a tile's weights expanded to bf16.
std::size_t expanded_tile_bytes(const weight_part& part);

/// Tiles of a part that are expanded to bf16 at a time: pieces of similar size that fit in `expanded_memory` bytes, or
/// single tiles.
std::size_t expanded_tiles(const weight_part& part, std::size_t expanded_memory);

/// See backend::scratch_bytes. `library`: products may go through cuBLASLt.
std::size_t scratch_bytes(const planned_steps& steps, bool library, std::size_t expanded_memory);

} // namespace troupe::kernels::cuda
