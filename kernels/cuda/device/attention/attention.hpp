// Attention over the paged cache. The context of a row is cut at absolute multiples of partition_tokens; each partition
// yields a state {o, m, l} (weighted sum of V, largest score, sum of exponentials), states merge in order
// (Flash-Decoding; Dao et al. 2023). Tiles pack rows and the query heads that share a KV head; a tile may hold rows of
// several sequences whose partition is the same blocks (Hydragen; Juravsky et al. 2024). Long prefill chunks go through
// one pass with a running softmax instead (FlashAttention-2). Launchers; what they launch is planned by
// attention_plan.hpp.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/kv_layout.hpp"
#include "kernels/cuda/device/rope.hpp"

namespace troupe::kernels::cuda {

struct attention_row {
  std::int32_t position = 0;
  std::int32_t first_partition = 0; // that it sees
  std::int32_t slot = 0;            // of the state of that partition; the next ones follow
};

/// Packed queries of a tile: i is head i % group (of those that share a KV head) of row rows[list[first + i / group]].
struct attention_work {
  std::int32_t first = 0;  // in the list of rows
  std::int32_t packed = 0; // the first packed query
  std::int32_t count = 0;  // of packed queries
  std::int32_t table = 0;  // where the block table starts: of the partition, or of the whole context (flash)
  std::int32_t partition = 0;
};

/// Most packed queries of a tile.
inline constexpr int small_tile = 16, large_tile = 32, flash_tile = 128;

struct attention_params {
  const float* q = nullptr; // [rows][heads][head_dim]
  std::size_t q_stride = 0;
  void* out = nullptr;
  dtype out_type = dtype::f32; // or bf16
  std::size_t out_stride = 0;
  int heads = 0;
  float scale = 1;
  int window = 0;
  /// Instead of the largest score, of a state made on tensor cores: sums need no rescaling (FlashDecoding++; Hong et al.
  /// 2024). A row whose scores it does not suit is computed anew, with a running maximum, when its states merge.
  bool unified = false;
  float maximum = 0;
  layer_cache cache;
  // In device memory:
  const attention_row* rows = nullptr;
  const std::int32_t* list = nullptr;
  const std::int32_t* tables = nullptr;
  const row_place* places = nullptr; // [rows]
  float* states = nullptr;           // [slots][heads][state_floats(head_dim)]
};

/// o, then m and l, padded to 16 bytes.
TROUPE_DEVICE constexpr int state_floats(int head_dim) { return (head_dim + 2 + 3) / 4 * 4; }

/// Whether the tensor-core kernels take these.
bool has_tensor_attention(kv_type type, int head_dim);

/// States of `count` works of at most `tile` packed queries, by plain arithmetic in f32, for every shape and type.
void attend_plainly(const stream& on, const attention_params& params, const attention_work* works, std::size_t count);

/// The same on tensor cores.
void attend(const stream& on, const attention_params& params, const attention_work* works, std::size_t count, int tile);

/// Whole rows of up to flash_tile packed queries of one sequence, straight to `out`.
void attend_flash(const stream& on, const attention_params& params, const attention_work* works, std::size_t count);

/// out of `count` rows, list[first...], from their states.
void merge_states(const stream& on, const attention_params& params, std::int32_t first, std::size_t count);

} // namespace troupe::kernels::cuda
