// Launchers of attention over the paged cache, as planned by attention_plan.hpp. The context of a row is cut at
// absolute multiples of partition_tokens. Each partition yields a state {o, m, l} (weighted sum of V, largest score,
// sum of exponentials); states merge in order (Flash-Decoding; Dao et al. 2023). Tiles pack rows and the query heads
// that share a KV head; a tile may hold rows of several sequences that share the partition's blocks (Hydragen; Juravsky
// et al. 2024). Long prefill chunks use one pass with a running softmax instead (FlashAttention-2).
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/kv_layout.hpp"
#include "kernels/cuda/device/rope.hpp"

namespace troupe::kernels::cuda {

/// Sums of rows and heads over more than one position. A row that is the first of its sequence is not counted: rows
/// that pad a recorded step are like that.
struct softmax_counts {
  std::uint64_t sums = 0, recomputed = 0;
};

struct attention_row {
  std::int32_t position = 0;
  std::int32_t first_partition = 0; // that the row sees
  std::int32_t slot = 0;            // of that partition's state; the states of later partitions follow
  std::int32_t first = 0, end = 0;  // positions that it sees
  std::int32_t common_slot = 0;     // of the quarter states, see attention_work::common

  TROUPE_DEVICE std::int32_t end_partition() const { return (end - 1) / partition_tokens + 1; }
};

/// Of rows that see the last tokens and, behind these, entries of groups that have ended (kernels/compressed_attention.hpp):
/// all of them, or the chosen ones where they are more than `most`. Rows and works count along that list.
struct entry_rows {
  int window = 0; // tokens; 0: rows are not of this kind
  int rate = 0;   // tokens of a group; 0: there are no entries
  int most = 0;   // 0: all

  TROUPE_DEVICE int tokens(int position) const { return position < window ? position + 1 : window; }
  TROUPE_DEVICE int ended(int position) const { return rate > 0 ? (position + 1) / rate : 0; }
  TROUPE_DEVICE bool chooses(int position) const { return most > 0 && ended(position) > most; }
  TROUPE_DEVICE int count(int position) const {
    return tokens(position) + (chooses(position) ? most : ended(position));
  }

  bool operator==(const entry_rows&) const = default;
};

/// Packed queries of a tile: query i is head i % group, of the heads that share a KV head, of row list[first + i /
/// group].
struct attention_work {
  std::int32_t first = 0;  // in the list of rows
  std::int32_t packed = 0; // the first packed query
  std::int32_t count = 0;  // of packed queries
  std::int32_t table = 0;  // start of the block table: of the partition, or of the whole context (flash)
  std::int32_t partition = 0;
  /// Quarters at the partition's beginning that sequences share although they part within it: their states are made
  /// by works of their own, for the queries of all, and taken over by the works of each sequence.
  std::int32_t common = 0;
};

/// Learned numbers that are added to scores (kernels/distance_attention.hpp).
struct distance_numbers {
  const float* table = nullptr; // distance 0 of the first row; farther ones are before it. Null: there are none
  std::size_t stride = 0;       // of the table's rows
  const float* mixes = nullptr; // [rows][heads][width]
  std::size_t mix_stride = 0;
  int width = 0, extent = 0;
};

/// Most packed queries of a tile.
inline constexpr int small_tile = 16, large_tile = 32, flash_tile = 128;

/// A partition's states on tensor cores are those of its quarters, merged in order.
inline constexpr int partition_quarters = 4, quarter_tokens = partition_tokens / partition_quarters;

struct attention_params {
  const float* q = nullptr; // [rows][heads][head_dim]
  std::size_t q_stride = 0;
  void* out = nullptr;
  dtype out_type = dtype::f32; // or bf16
  std::size_t out_stride = 0;
  int heads = 0;
  /// Multiplies scores: positive, times log2(e), because exponentials are powers of two (exponent()). The m of a state
  /// is such an exponent.
  float scale = 1;
  /// What changes scores before their softmax (score_shape.hpp), as exponents; see attention_scores.
  float cap = 0;
  const float* slopes = nullptr; // [heads], or null
  const float* sinks = nullptr;  // [heads], or null; e^ of them is added to sums
  /// For attend_plainly, and for `attend` and attend_common where has_tensor_attention(..., true).
  distance_numbers distances;
  /// States made on tensor cores use `maximum` instead of their largest score, so that sums need no rescaling
  /// (FlashDecoding++; Hong et al. 2024). A row for which it loses precision is recomputed with a running maximum when
  /// its states merge.
  bool unified = false;
  float maximum = 0;
  softmax_counts* counts = nullptr; // where `unified`
  bool aligned = false; // rows of q start at multiples of 16 bytes, rows of `out` at multiples of two elements
  layer_cache cache;
  // Device memory:
  const attention_row* rows = nullptr;
  const std::int32_t* list = nullptr;
  const std::int32_t* tables = nullptr;
  const row_place* places = nullptr; // [rows]
  float* states = nullptr;           // [slots][heads][state_floats(head_dim)]
  /// Positions that rows attend to, [rows][choices][most]; those of rows and works count along them. Or null: all. For
  /// attend_plainly and merge_states without a unified maximum.
  const std::int32_t* chosen = nullptr;
  int most = 0;
  int choices = 1; // or kv_heads, which choose for themselves
  entry_rows seen; // with a window, `chosen` are entries; `cache` and `entries` are of K alone, which are values, too
  layer_cache entries;
};

/// The exponent to base two of e^x.
constexpr float exponent(float x) { return x * 1.44269504f; }

/// o, then m and l, padded to 16 bytes.
TROUPE_DEVICE constexpr int state_floats(int head_dim) { return (head_dim + 2 + 3) / 4 * 4; }

/// Whether there are tensor-core kernels for these; `distances`: with numbers of distances, without attend_flash.
bool has_tensor_attention(kv_type type, int head_dim, bool distances = false);

/// States of `count` works by plain arithmetic in f32, for every shape and type.
void attend_plainly(const stream& on, const attention_params& params, const attention_work* works, std::size_t count);

/// States of `count` works of at most `tile` packed queries on tensor cores.
void attend(const stream& on, const attention_params& params, const attention_work* works, std::size_t count, int tile);

/// States of the common quarters of `count` works of at most large_tile packed queries. Before `attend`.
void attend_common(const stream& on, const attention_params& params, const attention_work* works, std::size_t count);

/// Complete attention of works of up to flash_tile packed queries of one sequence, written to `out`.
void attend_flash(const stream& on, const attention_params& params, const attention_work* works, std::size_t count);

/// Merges the states of `count` rows, list[first...], into `out`.
void merge_states(const stream& on, const attention_params& params, std::int32_t first, std::size_t count);

} // namespace troupe::kernels::cuda
