// What a block manager counts: the blocks of the KV cache, their host memory, and what was found in the prefix cache.
#pragma once

#include "runtime/support/statistic.hpp"

#include <array>
#include <cstdint>

namespace troupe {

struct block_counters {
  std::uint64_t total = 0;      // blocks of the pool
  std::uint64_t in_use = 0;     // referenced by a sequence
  std::uint64_t cached = 0;     // unreferenced, kept for their content
  std::uint64_t slots_used = 0; // positions of blocks in use that sequences have
  std::uint64_t unusable = 0;   // neither in use nor to be had: none, as any block can follow any other
  std::uint64_t looked_up_tokens = 0, found_tokens = 0, copied = 0, evicted = 0;
  std::uint64_t host_total = 0;  // slots of host memory
  std::uint64_t host_in_use = 0; // slots with content, which may be in the pool as well
  std::uint64_t swapped_out = 0, swapped_in = 0;
  std::uint64_t adopted = 0;  // that came from outside
  std::uint64_t unwanted = 0; // came from outside and were not adopted: known, without their predecessors or any room
  std::uint64_t kept = 0;     // saved to be kept outside
  std::uint64_t unkept = 0;   // evicted before they could be
  std::uint64_t sent = 0;     // to other replicas
  std::uint64_t sent_bytes = 0;
  std::uint64_t incomplete = 0; // chains of other replicas that did not arrive whole
  std::uint64_t snapshots = 0;  // slots for snapshots of states
  std::uint64_t snapshots_in_use = 0;
  std::uint64_t snapshots_restored = 0;
  std::uint64_t snapshots_evicted = 0; // for others
  std::uint64_t states_kept = 0;       // snapshots saved to be kept outside
  std::uint64_t states_adopted = 0;    // that came from outside
  std::uint64_t states_sent = 0;       // to other replicas
};

template <>
inline constexpr std::array statistics_of<block_counters>{
  gauge_of(&block_counters::total, "troupe_kv_blocks", "KV blocks in the pool."),
  gauge_of(&block_counters::in_use, "troupe_kv_blocks_in_use", "KV blocks that sequences refer to."),
  gauge_of(&block_counters::cached, "troupe_kv_blocks_cached", "Unreferenced KV blocks that hold reusable prefixes."),
  gauge_of(&block_counters::slots_used, "troupe_kv_slots_used",
           "Positions of the KV blocks in use that sequences have; a block has 16."),
  gauge_of(&block_counters::unusable, "troupe_kv_blocks_unusable",
           "KV blocks that nothing refers to and nothing can be given: 0 unless there is a fault."),
  counter_of(&block_counters::looked_up_tokens, "troupe_prefix_cache_queries_total",
             "Tokens looked up in the prefix cache: prompts, and after a preemption what was computed before."),
  counter_of(&block_counters::found_tokens, "troupe_prompt_tokens_cached_total",
             "Tokens found in the prefix cache, of those looked up."),
  counter_of(&block_counters::copied, "troupe_kv_blocks_copied_total", "Blocks copied on write."),
  counter_of(&block_counters::evicted, "troupe_kv_blocks_evicted_total", "Cached blocks given up for others."),
  gauge_of(&block_counters::host_total, "troupe_host_blocks", "Slots of host memory for evicted blocks."),
  gauge_of(&block_counters::host_in_use, "troupe_host_blocks_in_use", "Slots of host memory that hold a block."),
  counter_of(&block_counters::swapped_out, "troupe_kv_blocks_parked_total", "Evicted blocks moved to host memory."),
  counter_of(&block_counters::swapped_in, "troupe_kv_blocks_restored_total", "Blocks brought back from host memory."),
  counter_of(&block_counters::adopted, "troupe_kv_blocks_adopted_total", "Blocks that came from outside the pool."),
  counter_of(&block_counters::unwanted, "troupe_kv_blocks_unwanted_total",
             "Blocks that came from outside the pool and were of no use."),
  counter_of(&block_counters::kept, "troupe_kv_blocks_kept_total", "Blocks saved to be kept on the disk."),
  gauge_of(&block_counters::snapshots, "troupe_state_snapshots", "Slots for snapshots of recurrent layers' states."),
  gauge_of(&block_counters::snapshots_in_use, "troupe_state_snapshots_in_use", "Such slots that hold a snapshot."),
  counter_of(&block_counters::snapshots_restored, "troupe_state_snapshots_restored_total",
             "Cached prefixes of models with recurrent layers that were used."),
  counter_of(&block_counters::snapshots_evicted, "troupe_state_snapshots_evicted_total",
             "Snapshots given up for others."),
  counter_of(&block_counters::states_kept, "troupe_state_snapshots_kept_total",
             "Snapshots saved to be kept on the disk."),
  counter_of(&block_counters::states_adopted, "troupe_state_snapshots_adopted_total",
             "Snapshots that came from outside the pool."),
  counter_of(&block_counters::states_sent, "troupe_state_snapshots_sent_total", "Snapshots sent to other replicas."),
  counter_of(&block_counters::unkept, "troupe_kv_blocks_unkept_total", "Blocks evicted before they could be saved."),
  counter_of(&block_counters::sent, "troupe_kv_blocks_sent_total", "Blocks of prompts sent to other replicas."),
  counter_of(&block_counters::sent_bytes, "troupe_kv_sent_bytes_total", "Bytes of these."),
  counter_of(&block_counters::incomplete, "troupe_kv_chains_incomplete_total",
             "Prompts whose blocks did not all arrive from another replica."),
};
static_assert(well_described<block_counters>());

} // namespace troupe
