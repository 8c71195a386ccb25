// Divides a step's attention into tiles, partitions and states. Pure; runs on the host. A plan is uploaded once per
// step and serves all layers with the same window.
#pragma once

#include "kernels/cuda/device/attention/attention.hpp"
#include "kernels/ops.hpp"

#include <vector>

namespace troupe::kernels::cuda {

/// Reads of a quarter of a partition that sequences save together by making its states apart, where that is worth a
/// launch: of 64 tokens of 4 KiB, 0.08 us each at 3.35 TB/s. By count: no device has measured it.
inline constexpr int least_common_quarters = 32;

struct attention_options {
  int group = 1; // query heads that share a KV head
  int window = 0;
  bool flash = false;               // long chunks by attend_flash if they fill the device: a row's bits depend on it
  bool share = true;                // read a partition that several sequences share only once
  std::size_t most_slots = 1 << 16; // states in memory at a time
  int kv_heads = 1;
  int multiprocessors = 0; // of the device; 0: few, which any chunk fills
  int chunk = 0;           // as `window`, see attention_scores
  int ahead = 0;
  int least_common = 0; // reads of quarters that are worth saving by making states apart; 0: none are
  /// Of rows that attend to chosen positions if they see more than so many (position_choice): the others, or these.
  /// Positions of a row that chooses count from 0, as they are listed. 0: no row chooses.
  int most = 0;
  bool choosing = false;
  int unit = 1;         // neighbours that are chosen together; the last ones may be fewer
  bool grouped = false; // of those, none but whole ones are chosen, and what follows them is seen
  entry_rows seen = {};

  /// Whether a row of this position belongs to the plan.
  bool plans(int position) const { return most == 0 || choosing == (position >= most); }

  /// The first position that a row sees.
  int first_seen(int position) const;

  /// The position behind the last one that a row sees, in a sequence of `length` tokens.
  int end_seen(int position, int length) const;

  bool operator==(const attention_options&) const = default;
};

/// Works and rows whose states are in memory at the same time.
struct attention_slab {
  std::size_t small_first = 0, small = 0; // works of at most small_tile packed queries
  std::size_t large_first = 0, large = 0; // of at most large_tile
  std::size_t common_first = 0, common = 0;
  std::int32_t merge_first = 0; // in the list of rows
  std::size_t merge = 0;
};

struct attention_plan {
  std::vector<attention_row> rows; // of the step
  std::vector<std::int32_t> list;  // of rows; works and slabs refer to ranges of it
  std::vector<attention_work> small, large, flash, common;
  std::vector<attention_slab> slabs;
  std::size_t slots = 0; // of the largest slab
};

attention_plan plan_attention(const batch& step, const attention_options& options);

} // namespace troupe::kernels::cuda
