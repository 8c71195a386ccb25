#include "tests/simulation/audit.hpp"

#include "runtime/support/kv_blocks.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace troupe {

std::string block_audit::of(const block_manager& m) {
  const auto& pool = m.pool_;
  const auto all = pool.blocks_.size();
  std::vector<std::int32_t> references(all), places(all);
  std::size_t pending_snapshots = 0;
  std::set<std::int32_t> slots;
  for (const auto& [id, s] : m.sequences_) {
    const auto who = "sequence " + std::to_string(id.request) + "." + std::to_string(id.index) + " ";
    for (const auto b : s.table)
      if (b == block_manager::none || static_cast<std::size_t>(b) >= all)
        return who + "has no block in its table";
      else
        ++references[static_cast<std::size_t>(b)];
    // Guesses that branch have spare blocks until the next demand: at most two for each.
    const auto spare = static_cast<std::int32_t>(s.table.size()) - blocks_for(s.length);
    if (spare < 0 || spare > 2 * extra_logit_rows)
      return who + "has " + std::to_string(s.table.size()) + " blocks for " + std::to_string(s.length) + " positions";
    if (s.committed_blocks > static_cast<std::int32_t>(s.table.size()) || s.tail.size() >= block_manager::block_size)
      return who + "has committed more than it has";
    for (const auto& each : s.snapshots.planned_)
      if (++pending_snapshots; !slots.insert(each.slot).second)
        return who + "shares a slot for a snapshot";
  }
  std::size_t in_use = 0, cached = 0, indexed = 0;
  for (std::size_t i = 0; i < all; ++i) {
    const auto& b = pool.blocks_[i];
    if (b.references != references[i])
      return "block " + std::to_string(i) + " has " + std::to_string(b.references) + " references, and is in " +
        std::to_string(references[i]) + " tables";
    in_use += b.references > 0;
    cached += b.references == 0 && b.content.id != 0;
    indexed += b.content.id != 0;
  }
  for (const auto b : pool.free_) {
    const auto& free = pool.blocks_.at(static_cast<std::size_t>(b));
    if (++places[static_cast<std::size_t>(b)] > 1 || free.references > 0 || free.content.id != 0)
      return "block " + std::to_string(b) + " is free, and is not";
  }
  std::size_t in_order = 0;
  for (auto b = pool.oldest_; b != block_manager::none && in_order <= all; ++in_order) {
    const auto& one = pool.blocks_.at(static_cast<std::size_t>(b));
    if (one.references > 0 || one.content.id == 0)
      return "block " + std::to_string(b) + " may be evicted, and may not";
    b = one.newer;
  }
  if (in_use != pool.counters.in_use || cached != pool.counters.cached || in_order != cached)
    return "counters say " + std::to_string(pool.counters.in_use) + " in use and " +
      std::to_string(pool.counters.cached) + " cached, not " + std::to_string(in_use) + " and " +
      std::to_string(cached);
  if (in_use + cached + pool.free_.size() != all)
    return "of " + std::to_string(all) + " blocks, " + std::to_string(in_use) + " are in use, " +
      std::to_string(cached) + " cached and " + std::to_string(pool.free_.size()) + " free";
  if (pool.index_.size() != indexed)
    return "the index has " + std::to_string(pool.index_.size()) + " entries for " + std::to_string(indexed) +
      " blocks";
  for (const auto& [hash, b] : pool.index_)
    if (pool.blocks_.at(static_cast<std::size_t>(b)).content.hash != hash)
      return "the index has block " + std::to_string(b) + " in a wrong place";
  for (const auto& [id, _] : m.exchange_.shipments_)
    if (!m.sequences_.contains(id))
      return "a sequence is sent that there is not";
  if (pool.snapshots) {
    block_counters counted;
    pool.snapshots->count(counted);
    if (const auto known = pending_snapshots + pool.snapshots->attached(); known != counted.snapshots_in_use)
      return std::to_string(counted.snapshots_in_use) + " slots for snapshots are taken, and " + std::to_string(known) +
        " have or get one";
  }
  return {};
}

} // namespace troupe
