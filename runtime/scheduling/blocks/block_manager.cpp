#include "runtime/scheduling/blocks/block_manager.hpp"

#include "runtime/support/kv_blocks.hpp"

#include <algorithm>
#include <cassert>
#include <string_view>

namespace troupe {

block_counters block_manager::counters() const {
  auto c = pool_.counters;
  pool_.count(c);
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
  send_some(grant);
  for (auto& a : request.arrivals)
    arrive(a, request.swap, grant);
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
  auto found = sequences_.find(c.sequence);
  if (!prefix_cache_ || found == sequences_.end())
    return;
  auto& s = found->second;
  for (auto t : c.tokens) {
    s.tail.push_back(t);
    if (s.tail.size() == block_size)
      index_full_block(s);
  }
}

void block_manager::index_full_block(sequence& s) {
  auto& own = s.table[static_cast<std::size_t>(s.committed_blocks)];
  const auto hash = pool_.hash(s.hash, s.tail);
  const auto known = pool_.find(s.content, hash, s.tail);
  if (pool_.kept)
    s.key = pool_.kept->keys.next(s.key, s.tail);
  if (known == none) {
    block_content content{0, s.content, hash, {}, s.key, s.committed_blocks};
    std::copy(s.tail.begin(), s.tail.end(), content.tokens.begin());
    pool_.put(own, content, pool_.kept.has_value());
  } else if (known != own) {
    // Another sequence computed the same content meanwhile, to the same bits: keep one of the two.
    pool_.reference(known);
    pool_.unreference(own);
    own = known;
  }
  s.content = pool_.content(own).id;
  s.hash = hash;
  ++s.committed_blocks;
  s.tail.clear();
  if (pool_.snapshots && s.snapshots.attach(*pool_.snapshots, s.content, s.committed_blocks * block_size))
    pool_.keep_state(pool_.content(own));
}

void block_manager::fork(const block_fork& f) {
  auto from = sequences_.find(f.from);
  if (from == sequences_.end())
    return;
  auto [to, inserted] = sequences_.try_emplace(f.to, from->second);
  if (!inserted)
    return;
  for (auto b : to->second.table)
    pool_.reference(b);
  to->second.snapshots.fork();
  if (f.length < to->second.length)
    shorten(to->second, f.length);
}

// Also by blocks that are in the index, so that the chain ends sooner.
void block_manager::shorten(sequence& s, std::int32_t length) {
  if (const auto blocks = length / block_size; blocks < s.committed_blocks) {
    s.committed_blocks = blocks;
    s.tail.clear();
    if (blocks > 0) {
      const auto& last = pool_.content(s.table[static_cast<std::size_t>(blocks) - 1]);
      s.content = last.id;
      s.hash = last.hash;
      s.key = last.key;
    } else {
      s.content = s.hash = s.root;
      if (pool_.kept)
        s.key = pool_.kept->keys.root(s.root);
    }
  }
  truncate(s, length);
}

void block_manager::release(sequence_id id) {
  auto found = sequences_.find(id);
  if (found == sequences_.end())
    return;
  // Last block first: the end of a chain is useless without its beginning, so it is evicted first.
  auto& table = found->second.table;
  if (const auto last = found->second.snapshots.rolling(); last.content != 0 && last.place < std::ssize(table) &&
      pool_.content(table[static_cast<std::size_t>(last.place)]).id == last.content)
    pool_.keep_state(pool_.content(table[static_cast<std::size_t>(last.place)]));
  for (auto b = table.rbegin(); b != table.rend(); ++b)
    if (*b != none) // still in host memory
      pool_.unreference(*b);
  drop_snapshots(found->second, 0);
  sequences_.erase(found);
  shipments_.erase(id);
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
    hits = open(found->second, *d.open, d.from, d.salt, swap.swap_in);
    if (d.alike > found->second.length && has(d.like, d.alike)) {
      let_go(hits);
      release(d.sequence);
      fork({d.like, d.sequence, d.alike});
      found = sequences_.find(d.sequence);
    }
  } else {
    truncate(found->second, std::min(d.from, found->second.length));
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
    swap_in(s, hits, swap, grant);
    if (d.destination && to_send_) {
      shipments_.insert_or_assign(d.sequence, shipment{d.destination});
      grant.offers.push_back(d.destination);
    }
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

// Takes back what was granted for positions from `length` on, and spare blocks.
void block_manager::truncate(sequence& s, std::int32_t length) {
  assert(length <= s.length && length / block_size >= s.committed_blocks);
  s.length = length;
  drop_snapshots(s, length);
  for (; static_cast<std::int32_t>(s.table.size()) > blocks_for(length); s.table.pop_back())
    pool_.unreference(s.table.back());
}

void block_manager::drop_snapshots(sequence& s, std::int32_t length) {
  if (pool_.snapshots)
    s.snapshots.drop(*pool_.snapshots, length);
}

// Blocks found in host memory get a place in the table but no block yet: the demand may still be refused.
std::vector<block_manager::host_hit> block_manager::open(sequence& s, const std::vector<token_id>& tokens,
                                                         std::int32_t most, prefix_salt salt, bool from_host) {
  std::vector<host_hit> hits;
  s.content = s.hash = s.root = salt; // of its chain of blocks
  if (pool_.kept)
    s.key = pool_.kept->keys.root(salt);
  if (!prefix_cache_ || tokens.empty())
    return hits;
  // The last token is always recomputed, for its logits.
  auto usable = std::min(tokens.size() - 1, static_cast<std::size_t>(most)) / block_size;
  if (pool_.snapshots)
    usable = s.snapshots.reach(pool_, {salt, salt}, tokens, usable, from_host);
  chain at{salt, salt};
  for (std::size_t i = 0; i < usable; ++i) {
    const auto chunk = std::span(tokens).subspan(i * block_size, block_size);
    const auto found = pool_.follow(at, chunk);
    if (!found || (found.slot && !from_host))
      break;
    if (found.slot) {
      pool_.hold(*found.slot);
      hits.push_back({s.table.size(), *found.slot});
    } else {
      pool_.reference(found.block);
    }
    s.table.push_back(found.block);
    s.content = at.content;
    s.hash = at.hash;
    if (pool_.kept)
      s.key = pool_.kept->keys.next(s.key, chunk);
    ++s.committed_blocks;
    s.length += block_size;
  }
  return hits;
}

bool block_manager::has(sequence_id id, std::int32_t positions) const {
  const auto found = sequences_.find(id);
  return found != sequences_.end() && found->second.length >= positions;
}

// As on the device, the end of a chain is evicted before its beginning.
void block_manager::let_go(std::vector<host_hit>& hits) {
  for (auto hit = hits.rbegin(); hit != hits.rend(); ++hit)
    pool_.let_go(hit->slot);
  hits.clear();
}

void block_manager::swap_in(sequence& s, std::vector<host_hit>& hits, swap_decision swap, block_grant& grant) {
  for (const auto& hit : hits)
    s.table[hit.place] = pool_.restore(hit.slot, swap, grant);
  let_go(hits);
}

} // namespace troupe
