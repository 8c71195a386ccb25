// What a kv_store counts: a snapshot. Plain values.
#pragma once

#include "runtime/support/statistic.hpp"

#include <array>
#include <cstdint>

namespace troupe {

struct kv_store_counters {
  std::uint64_t bytes = 0;                  // in the folder, as far as this process knows
  std::uint64_t read = 0, damaged = 0;      // blocks; damaged ones are skipped and removed
  std::uint64_t written = 0, unwritten = 0; // blocks; unwritten: the disk refused
  std::uint64_t removed = 0;                // blocks that others had to make room for
};

template <>
inline constexpr std::array statistics_of<kv_store_counters>{
  gauge_of(&kv_store_counters::bytes, "troupe_kv_disk_bytes", "Size of the files of kept blocks."),
  counter_of(&kv_store_counters::read, "troupe_kv_disk_blocks_read_total", "Blocks read from files."),
  counter_of(&kv_store_counters::damaged, "troupe_kv_disk_blocks_damaged_total",
             "Files that were damaged, skipped and removed."),
  counter_of(&kv_store_counters::written, "troupe_kv_disk_blocks_written_total", "Blocks written to files."),
  counter_of(&kv_store_counters::unwritten, "troupe_kv_disk_blocks_unwritten_total", "Blocks that the disk refused."),
  counter_of(&kv_store_counters::removed, "troupe_kv_disk_blocks_removed_total",
             "Files removed because the folder had reached its size."),
};
static_assert(well_described<kv_store_counters>());

} // namespace troupe
