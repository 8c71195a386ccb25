#include "runtime/scheduling/blocks/block_manager.hpp"

#include "runtime/support/kv_blocks.hpp"

#include <algorithm>
#include <cassert>
#include <string_view>

namespace troupe {

// splitmix64's finaliser (Steele, Lea, Flood 2014) over the tokens, seeded by the predecessor's hash.
std::uint64_t block_manager::content_hash(std::uint64_t parent, std::span<const token_id> tokens) {
  std::uint64_t h = parent ^ 0x9e3779b97f4a7c15;
  for (auto t : tokens) {
    h += static_cast<std::uint32_t>(t) + 0x9e3779b97f4a7c15;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
    h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
    h ^= h >> 31;
  }
  return h;
}

block_manager::block_manager(std::int32_t blocks, bool prefix_cache, std::int32_t host_blocks, hash_fn hash)
  : prefix_cache_(prefix_cache), hash_(hash), host_pool_(host_blocks), blocks_(static_cast<std::size_t>(blocks)) {
  free_.reserve(blocks_.size());
  for (auto b = blocks; b-- > 0;)
    free_.push_back(b);
  counters_.total = blocks_.size();
}

block_counters block_manager::counters() const {
  auto c = counters_;
  c.host_total = host_pool_.total();
  c.host_in_use = host_pool_.in_use();
  c.unusable = c.total - c.in_use - static_cast<std::uint64_t>(available());
  c.slots_used = c.in_use * block_size;
  std::unordered_map<block_id, std::int32_t> filled; // positions of blocks that are not full, by who has the most
  for (const auto& [_, s] : sequences_)
    for (auto i = static_cast<std::size_t>(s.length / block_size); i < s.table.size(); ++i) {
      auto& most = filled[s.table[i]];
      most = std::max(most, s.length - static_cast<std::int32_t>(i) * block_size);
    }
  for (const auto& [_, positions] : filled)
    c.slots_used -= static_cast<std::uint64_t>(block_size - std::clamp(positions, 0, block_size));
  if (snapshots_)
    snapshots_->count(c);
  return c;
}

std::string block_manager::map() const {
  constexpr std::size_t most_cells = 16'384;
  constexpr std::string_view in_order = "fcd123456789"; // by use
  const auto each = std::max<std::size_t>(1, (blocks_.size() + most_cells - 1) / most_cells);
  std::vector<std::uint8_t> uses((blocks_.size() + each - 1) / each); // places in that order
  const auto see = [&](std::size_t block, std::size_t use) {
    auto& cell = uses[block / each];
    cell = std::max(cell, static_cast<std::uint8_t>(use));
  };
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto& b = blocks_[i];
    if (b.references > 0)
      see(i, 2 + static_cast<std::size_t>(std::min(b.references, 9)));
    else if (b.content.id != 0)
      see(i, kept_ && !b.unsaved && b.content.key != block_key{} ? 2 : 1);
  }
  std::string cells;
  for (const auto use : uses)
    cells += in_order[use];
  return cells;
}

block_grant block_manager::serve(const block_request& request) {
  block_grant grant;
  for (auto& c : request.commits)
    commit(c);
  for (auto& f : request.forks)
    fork(f);
  for (auto id : request.releases)
    release(id);
  save_some(grant);
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
  grant.free_blocks = static_cast<std::int32_t>(free_.size());
  grant.cached_blocks = static_cast<std::int32_t>(counters_.cached);
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
  auto hash = hash_(s.hash, s.tail);
  auto known = find(s.content, hash, s.tail);
  const bool kept = kept_ && s.lasting;
  if (kept)
    s.key = kept_->keys.next(s.key, s.tail);
  if (known == none) {
    block_content content{0, s.content, hash, {}, s.key, s.committed_blocks};
    std::copy(s.tail.begin(), s.tail.end(), content.tokens.begin());
    // A block that is in host memory and was recomputed keeps its content id, so that its successors are found from
    // either.
    const auto twin = host_pool_.find(s.content, hash, s.tail);
    content.id = twin ? host_pool_.content(*twin).id : ++last_content_;
    put_into_index(own, content);
    if (kept && !twin) {
      blocks_[static_cast<std::size_t>(own)].unsaved = true;
      to_save_.emplace_back(own, content.id);
    }
  } else if (known != own) {
    // Another sequence computed the same content meanwhile, to the same bits: keep one of the two.
    reference(known);
    unreference(own);
    own = known;
  }
  s.content = blocks_[static_cast<std::size_t>(own)].content.id;
  s.hash = hash;
  ++s.committed_blocks;
  s.tail.clear();
  if (snapshots_)
    attach_snapshot(s);
}

void block_manager::put_into_index(block_id b, const block_content& content) {
  blocks_[static_cast<std::size_t>(b)].content = content;
  index_.emplace(content.hash, b);
}

void block_manager::fork(const block_fork& f) {
  auto from = sequences_.find(f.from);
  if (from == sequences_.end())
    return;
  auto [to, inserted] = sequences_.try_emplace(f.to, from->second);
  if (!inserted)
    return;
  for (auto b : to->second.table)
    reference(b);
  to->second.saves.clear();
  to->second.rolling = 0;
  if (f.length < to->second.length)
    shorten(to->second, f.length);
}

// Also by blocks that are in the index, so that the chain ends sooner.
void block_manager::shorten(sequence& s, std::int32_t length) {
  if (const auto blocks = length / block_size; blocks < s.committed_blocks) {
    // What other blocks the chain has outside the pool (`key`) is not known of its middle.
    s.lasting = false;
    s.committed_blocks = blocks;
    s.tail.clear();
    if (blocks > 0) {
      const auto& last = blocks_[static_cast<std::size_t>(s.table[static_cast<std::size_t>(blocks) - 1])].content;
      s.content = last.id;
      s.hash = last.hash;
    } else {
      s.content = s.hash = s.root;
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
  for (auto b = table.rbegin(); b != table.rend(); ++b)
    if (*b != none) // still in host memory
      unreference(*b);
  drop_saves(found->second, 0);
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
    found->second.lasting = d.lasting;
    hits = open(found->second, *d.open, d.from, d.salt, swap.swap_in);
  } else {
    truncate(found->second, std::min(d.from, found->second.length));
  }
  auto& s = found->second;
  auto wanted = d.rows;
  if (opening)
    wanted = std::min(wanted, static_cast<std::int32_t>(d.open->size()) - s.length);

  // Blocks available to this demand, less those for swapping in and for the copy of a shared partial block.
  const auto partial = s.length % block_size;
  const auto* last = partial == 0 ? nullptr : &blocks_[static_cast<std::size_t>(s.table.back())];
  const bool copy = last && (last->references > 1 || last->content.id != 0); // cached content is not overwritten
  auto room = available() - d.reserve - (copy ? 1 : 0) - static_cast<std::int32_t>(hits.size());
  if (room >= 0)
    a.rows = std::min(wanted, room * block_size + (partial ? block_size - partial : 0));
  if (d.whole && a.rows < wanted)
    a.rows = 0;
  if (a.rows <= 0) {
    a.rows = 0;
    if (opening) {
      for (auto p = hits.rbegin(); p != hits.rend(); ++p)
        host_pool_.release(p->slot);
      release(d.sequence);
    }
    return a;
  }
  if (opening) {
    counters_.looked_up_tokens += d.open->size();
    counters_.found_tokens += static_cast<std::uint64_t>(s.length);
    if (snapshots_ && s.length > 0) {
      a.snapshot = s.restored;
      snapshots_->use(s.restored);
    }
    swap_in(s, hits, swap, grant);
    if (d.destination && to_send_) {
      shipments_.insert_or_assign(d.sequence, shipment{d.destination});
      grant.offers.push_back(d.destination);
    }
  }
  if (copy) {
    auto fresh = acquire(swap, &grant);
    grant.moves.push_back({block_move::kind::copy, s.table.back(), fresh});
    unreference(s.table.back());
    s.table.back() = fresh;
    ++counters_.copied;
  }
  a.first_position = s.length;
  s.length += a.rows;
  while (static_cast<std::int32_t>(s.table.size()) < blocks_for(s.length))
    s.table.push_back(acquire(swap, &grant));
  if (d.spare > 0 && a.rows == d.rows && available() - d.reserve >= d.spare) {
    for (a.spare = 0; a.spare < d.spare; ++a.spare)
      s.table.push_back(acquire(swap, &grant));
  }
  a.first_block = static_cast<std::int32_t>(grant.tables.size());
  a.blocks = static_cast<std::int32_t>(s.table.size());
  grant.tables.insert(grant.tables.end(), s.table.begin(), s.table.end());
  if (snapshots_)
    grant_saves(s, a, d.guesses);
  return a;
}

// Takes back what was granted for positions from `length` on, and spare blocks.
void block_manager::truncate(sequence& s, std::int32_t length) {
  assert(length <= s.length && length / block_size >= s.committed_blocks);
  s.length = length;
  drop_saves(s, length);
  for (; static_cast<std::int32_t>(s.table.size()) > blocks_for(length); s.table.pop_back())
    unreference(s.table.back());
}

// Blocks found in host memory get a place in the table but no block yet: the demand may still be refused.
std::vector<block_manager::host_hit> block_manager::open(sequence& s, const std::vector<token_id>& tokens,
                                                         std::int32_t most, prefix_salt salt, bool from_host) {
  std::vector<host_hit> hits;
  s.content = s.hash = s.root = salt; // of its chain of blocks
  const bool kept = kept_ && s.lasting;
  if (kept)
    s.key = kept_->keys.root(salt);
  if (!prefix_cache_ || tokens.empty())
    return hits;
  // The last token is always recomputed, for its logits.
  auto usable = std::min(tokens.size() - 1, static_cast<std::size_t>(most)) / block_size;
  if (snapshots_)
    usable = reach(s, tokens, usable, from_host);
  for (std::size_t i = 0; i < usable; ++i) {
    auto chunk = std::span(tokens).subspan(i * block_size, block_size);
    auto hash = hash_(s.hash, chunk);
    if (auto b = find(s.content, hash, chunk); b != none) {
      reference(b);
      s.table.push_back(b);
      s.content = blocks_[static_cast<std::size_t>(b)].content.id;
    } else if (auto slot = from_host ? host_pool_.find(s.content, hash, chunk) : std::nullopt) {
      host_pool_.hold(*slot);
      hits.push_back({s.table.size(), *slot});
      s.table.push_back(none);
      s.content = host_pool_.content(*slot).id;
    } else {
      break;
    }
    s.hash = hash;
    if (kept)
      s.key = kept_->keys.next(s.key, chunk);
    ++s.committed_blocks;
    s.length += block_size;
  }
  return hits;
}

// The slots keep their content, so that a block evicted again need not be swapped out again.
void block_manager::swap_in(sequence& s, const std::vector<host_hit>& hits, swap_decision swap, block_grant& grant) {
  for (const auto& p : hits) {
    const auto b = s.table[p.place] = acquire(swap, &grant);
    put_into_index(b, host_pool_.content(p.slot));
    grant.moves.push_back({block_move::kind::swap_in, p.slot, b});
    ++counters_.swapped_in;
  }
  // The end of a chain is evicted before its beginning, as on the device.
  for (auto p = hits.rbegin(); p != hits.rend(); ++p)
    host_pool_.release(p->slot);
}

block_manager::block_id block_manager::find(std::uint64_t parent_content, std::uint64_t hash,
                                            std::span<const token_id> tokens) const {
  auto [first, last] = index_.equal_range(hash);
  for (; first != last; ++first)
    if (blocks_[static_cast<std::size_t>(first->second)].content.is(parent_content, tokens))
      return first->second;
  return none;
}

block_manager::block_id block_manager::acquire(swap_decision swap, block_grant* grant) {
  auto b = none;
  if (!free_.empty()) {
    b = free_.back();
    free_.pop_back();
  } else {
    assert(oldest_ != none && "demands are checked against what is available");
    b = oldest_;
    unlink(b);
    auto& content = blocks_[static_cast<std::size_t>(b)].content;
    auto [first, last] = index_.equal_range(content.hash);
    index_.erase(std::find_if(first, last, [b](auto& entry) { return entry.second == b; }));
    if (blocks_[static_cast<std::size_t>(b)].unsaved && !(grant && save(b, *grant))) {
      blocks_[static_cast<std::size_t>(b)].unsaved = false;
      ++counters_.unkept;
    }
    bool swapped = grant && swap.swap_out && host_pool_.refresh(content.id);
    if (grant && swap.swap_out && !swapped)
      if (const auto slot = host_pool_.store(content)) {
        grant->moves.push_back({block_move::kind::swap_out, b, *slot});
        ++counters_.swapped_out;
        swapped = true;
      }
    if (snapshots_ && !swapped)
      snapshots_->forget(content.id);
    content = {};
    ++counters_.evicted;
    if (grant)
      ++grant->evicted;
  }
  blocks_[static_cast<std::size_t>(b)].references = 1;
  ++counters_.in_use;
  if (grant)
    ++grant->acquired;
  return b;
}

void block_manager::reference(block_id id) {
  auto& b = blocks_[static_cast<std::size_t>(id)];
  if (b.references++ == 0) {
    unlink(id);
    ++counters_.in_use;
  }
}

void block_manager::unreference(block_id id) {
  auto& b = blocks_[static_cast<std::size_t>(id)];
  if (--b.references > 0)
    return;
  --counters_.in_use;
  if (b.content.id == 0) {
    free_.push_back(id);
    return;
  }
  b.older = newest_;
  b.newer = none;
  (newest_ == none ? oldest_ : blocks_[static_cast<std::size_t>(newest_)].newer) = id;
  newest_ = id;
  ++counters_.cached;
}

void block_manager::unlink(block_id id) {
  auto& b = blocks_[static_cast<std::size_t>(id)];
  (b.older == none ? oldest_ : blocks_[static_cast<std::size_t>(b.older)].newer) = b.newer;
  (b.newer == none ? newest_ : blocks_[static_cast<std::size_t>(b.newer)].older) = b.older;
  --counters_.cached;
}

} // namespace troupe
