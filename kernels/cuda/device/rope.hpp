// Rotates q and k of a step's rows and writes k and v to the paged cache.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/kv_layout.hpp"

namespace troupe::kernels::cuda {

/// Position of a row of a step.
struct row_place {
  std::int32_t position = 0;
  std::int32_t first_block = 0; // start of its sequence's block table in the step's tables
  std::int32_t length = 0;      // of its sequence, as in sequence_rows
};

struct rope_params {
  float* qkv = nullptr; // [rows][q heads | k heads | v heads][head_dim], or q alone, or without v
  std::size_t stride = 0;
  int heads = 0;
  const float* q_norm = nullptr; // [head_dim], or null
  const float* k_norm = nullptr;
  float eps = 0;
  bool norm_behind = false;  // the rotation
  bool queries_only = false; // and nothing is written
  int rate = 1;              // only rows of every so many positions count, which rotate as the first of these
  rope_rows rope;            // [positions][cosines | sines]
  layer_cache cache;
  const row_place* places = nullptr;    // [rows], device memory
  const std::int32_t* tables = nullptr; // device memory
  std::size_t rows = 0;
};
void rope_write_kv(const stream& on, const rope_params& params);

/// Copies tokens' K and V between blocks of a layer. `copies` [count], device memory.
void copy_tokens(const stream& on, const layer_cache& cache, const token_copy* copies, std::size_t count);

} // namespace troupe::kernels::cuda
