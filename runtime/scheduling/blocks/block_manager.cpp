#include "runtime/scheduling/blocks/block_manager.hpp"

#include "runtime/support/kv_blocks.hpp"

#include <algorithm>
#include <unordered_map>

namespace troupe {

block_counters block_manager::totals() const {
  auto c = pool_.counters;
  pool_.count(c);
  return c;
}

block_counters block_manager::counters() const {
  auto c = totals();
  c.slots_used = c.in_use * block_size;
  std::unordered_map<block_id, std::int32_t> filled; // positions of blocks that are not full, by who has the most
  for (const auto& [_, s] : sequences_)
    for (auto i = static_cast<std::size_t>(s.length / block_size); i < s.table.size(); ++i) {
      auto& most = filled[s.table[i]];
      most = std::max(most, s.length - static_cast<std::int32_t>(i) * block_size);
    }
  for (const auto& [_, positions] : filled)
    c.slots_used -= static_cast<std::uint64_t>(block_size - std::clamp(positions, 0, block_size));
  return c;
}

block_grant block_manager::serve(const block_request& request) {
  block_grant grant;
  for (auto& c : request.commits)
    commit(c);
  for (auto& f : request.forks)
    fork(f);
  for (auto id : request.releases)
    release(id);
  pool_.save_some(grant);
  exchange_.send_some(sequences_, grant);
  for (auto& a : request.arrivals)
    exchange_.arrive(a, request.swap, grant);
  for (auto& l : request.lookups)
    grant.found.push_back(look_up(l));
  grant.answers.reserve(request.demands.size());
  bool refused = false;
  for (auto& d : request.demands) {
    grant.answers.push_back(d.open && refused ? block_answer{.sequence = d.sequence} : answer(d, request.swap, grant));
    refused = refused || (d.open && grant.answers.back().rows == 0);
  }
  grant.free_blocks = pool_.free();
  grant.cached_blocks = static_cast<std::int32_t>(pool_.counters.cached);
  return grant;
}

void block_manager::commit(const block_commit& c) {
  if (const auto found = sequences_.find(c.sequence); prefix_cache_ && found != sequences_.end())
    found->second.commit(pool_, c.tokens);
}

void block_manager::fork(const block_fork& f) {
  const auto from = sequences_.find(f.from);
  if (from == sequences_.end())
    return;
  const auto [to, inserted] = sequences_.try_emplace(f.to, from->second);
  if (!inserted)
    return;
  to->second.share(pool_);
  if (f.length < to->second.length)
    to->second.shorten(pool_, f.length);
}

void block_manager::release(sequence_id id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end())
    return;
  found->second.release(pool_);
  sequences_.erase(found);
  exchange_.forget(id);
}

block_answer block_manager::answer(const block_demand& d, swap_decision swap, block_grant& grant) {
  block_answer a{d.sequence};
  std::vector<host_hit> hits;
  auto found = sequences_.find(d.sequence);
  const bool opening = found == sequences_.end();
  if (opening) {
    if (!d.open)
      return a;
    found = sequences_.try_emplace(d.sequence).first;
    found->second.begin(pool_, d.salt);
    if (prefix_cache_)
      hits = found->second.open(pool_, *d.open, d.from, swap.swap_in);
    if (d.alike > found->second.length && has(d.like, d.alike)) {
      let_go(hits);
      release(d.sequence);
      fork({d.like, d.sequence, d.alike});
      found = sequences_.find(d.sequence);
    }
  } else {
    found->second.truncate(pool_, std::min(d.from, found->second.length));
  }
  auto& s = found->second;
  auto wanted = d.rows;
  if (opening)
    wanted = std::min(wanted, static_cast<std::int32_t>(d.open->size()) - s.length);

  // Blocks available to this demand, less those for swapping in and for the copy of a shared partial block.
  const auto partial = s.length % block_size;
  const bool copy = partial > 0 && pool_.is_shared(s.table.back());
  auto room = pool_.available() - d.reserve - (copy ? 1 : 0) - static_cast<std::int32_t>(hits.size());
  if (room >= 0)
    a.rows = std::min(wanted, room * block_size + (partial ? block_size - partial : 0));
  if (d.whole && a.rows < wanted)
    a.rows = 0;
  if (a.rows <= 0) {
    a.rows = 0;
    if (opening) {
      let_go(hits);
      release(d.sequence);
    }
    return a;
  }
  if (opening) {
    pool_.counters.looked_up_tokens += d.open->size();
    pool_.counters.found_tokens += static_cast<std::uint64_t>(s.length);
    if (pool_.snapshots && s.length > 0)
      a.snapshot = s.snapshots.use(*pool_.snapshots);
    a.committed = s.committed_blocks * block_size;
    for (const auto& hit : hits)
      s.table[hit.place] = pool_.restore(hit.slot, swap, grant);
    let_go(hits);
    if (d.destination)
      exchange_.offer(d.sequence, d.destination, grant);
  }
  if (copy) {
    auto fresh = pool_.acquire(swap, &grant);
    grant.moves.push_back({block_move::kind::copy, s.table.back(), fresh});
    pool_.unreference(s.table.back());
    s.table.back() = fresh;
    ++pool_.counters.copied;
  }
  a.first_position = s.length;
  s.length += a.rows;
  while (static_cast<std::int32_t>(s.table.size()) < blocks_for(s.length))
    s.table.push_back(pool_.acquire(swap, &grant));
  if (d.spare > 0 && a.rows == d.rows && pool_.available() - d.reserve >= d.spare) {
    for (a.spare = 0; a.spare < d.spare; ++a.spare)
      s.table.push_back(pool_.acquire(swap, &grant));
  }
  a.first_block = static_cast<std::int32_t>(grant.tables.size());
  a.blocks = static_cast<std::int32_t>(s.table.size());
  grant.tables.insert(grant.tables.end(), s.table.begin(), s.table.end());
  if (pool_.snapshots && prefix_cache_)
    s.snapshots.grant(*pool_.snapshots, a, d.guesses);
  return a;
}

bool block_manager::has(sequence_id id, std::int32_t positions) const {
  const auto found = sequences_.find(id);
  return found != sequences_.end() && found->second.length >= positions;
}

// The end of a chain is evicted before its beginning, as on the device.
void block_manager::let_go(std::vector<host_hit>& hits) {
  for (auto hit = hits.rbegin(); hit != hits.rend(); ++hit)
    pool_.let_go(hit->slot);
  hits.clear();
}

} // namespace troupe
