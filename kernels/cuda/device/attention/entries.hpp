// Launchers of what compressed keys need besides attention (kernels/compressed_attention.hpp): means of groups, which norm
// and rotation (rope.hpp) then make entries, and the rotation of attention's results. Never run on a GPU.
#pragma once

#include "kernels/compressed_attention.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/kv_layout.hpp"
#include "kernels/cuda/device/rope.hpp"

namespace troupe::kernels::cuda {

struct entries_params {
  float* means = nullptr; // [rows][dim], of rows whose token ends a group; the others are not written
  entry_making how;
  layer_cache from; // K: what tokens give, V: their gates
  // Device memory:
  const row_place* places = nullptr; // [rows]
  const std::int32_t* tables = nullptr;
  std::size_t rows = 0;
};
void average_groups(const stream& on, const entries_params& params);

/// See compressed_attention::undo_rotation.
void undo_rotation(const stream& on, const tensor& out, const tensor& x, int heads, int pairs, const float* angles,
                   const row_place* places);

} // namespace troupe::kernels::cuda
