// Launchers of an indexer's choice (kernels/sparse_attention.hpp): scores of the positions that a row sees, then the best of
// them, exactly, by radix selection. Every score is one thread's, and every choice one block's, so neither depends on
// what else is in a step.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/kv_layout.hpp"
#include "kernels/cuda/device/rope.hpp"
#include "kernels/sparse_attention.hpp"

namespace troupe::kernels::cuda {

struct choice_params {
  // Device memory:
  const float* queries = nullptr; // [rows][heads][dim]
  std::size_t queries_stride = 0;
  const float* weights = nullptr; // [rows][heads]; or null: heads choose for themselves
  std::size_t weights_stride = 0;
  const row_place* places = nullptr; // [rows]
  const std::int32_t* tables = nullptr;
  float* scores = nullptr;        // [rows at hand][choices][width]
  std::int32_t* chosen = nullptr; // [rows][choices][most], ascending; of rows that see more than `most`
  layer_cache keys;               // of K alone, one for all heads
  int heads = 0;
  std::size_t width = 0; // keys, at least those that a row sees
  int most = 0;
  int block = 1;     // positions that are chosen together, by their highest score; `most` is a multiple
  int last = 0;      // blocks that are chosen in any case: the last ones that a row sees
  key_groups groups; // positions that share a key; with groups there are neither blocks nor a rate
  int rate = 1;      // every so many positions there is a key; `most` counts these

  constexpr int choices() const { return weights != nullptr ? 1 : heads; }
  /// Keys that a row sees.
  TROUPE_DEVICE int keys_seen(int position) const { return (position + 1) / (rate * groups.size); }
  TROUPE_DEVICE bool chooses(int position) const { return (position + 1) / rate > most; }
};

/// Of rows [first, first + rows), whose scores are at hand.
void score_positions(const stream& on, const choice_params& params, std::size_t first, std::size_t rows);
void choose_best(const stream& on, const choice_params& params, std::size_t first, std::size_t rows);

} // namespace troupe::kernels::cuda
