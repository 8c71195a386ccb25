// The part of class block_manager by which content leaves the pool and comes to it.
#include "runtime/scheduling/block_manager.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

namespace {

std::int32_t full_blocks(std::span<const token_id> tokens) {
  return static_cast<std::int32_t>(tokens.size()) / kernels::block_tokens;
}

std::span<const token_id> block_of(std::span<const token_id> tokens, std::int32_t place) {
  return tokens.subspan(static_cast<std::size_t>(place) * kernels::block_tokens, kernels::block_tokens);
}

} // namespace

// Goes on to the next block, if it is cached.
block_manager::place block_manager::follow(chain& at, std::span<const token_id> tokens) const {
  const auto hash = hash_(at.hash, tokens);
  place found;
  found.block = find(at.content, hash, tokens);
  if (found.block == none)
    found.slot = host_pool_.find(at.content, hash, tokens);
  if (found) {
    at.hash = hash;
    at.content = (found.block != none ? blocks_[static_cast<std::size_t>(found.block)].content
                                      : host_pool_.content(*found.slot))
                   .id;
  }
  return found;
}

block_found block_manager::look_up(const block_lookup& l) const {
  block_found found;
  if (kept_)
    found.key = kept_->keys.root(l.salt);
  chain at{l.salt, l.salt};
  for (; found.blocks < full_blocks(*l.tokens); ++found.blocks) {
    const auto tokens = block_of(*l.tokens, found.blocks);
    if (!prefix_cache_ || !follow(at, tokens))
      break;
    if (kept_)
      found.key = kept_->keys.next(found.key, tokens);
  }
  return found;
}

// -- leases -----------------------------------------------------------------------------------------------------------

block_lease block_manager::lend(std::span<const token_id> tokens, prefix_salt salt, std::int32_t first,
                                time_point until) {
  block_lease lent{0, first, {}};
  chain at{salt, salt};
  for (std::int32_t i = 0; i < full_blocks(tokens); ++i) {
    const auto found = follow(at, block_of(tokens, i));
    if (!found || (i >= first && found.block == none))
      break;
    if (i >= first)
      lent.blocks.push_back(found.block);
  }
  if (lent.blocks.empty())
    return lent;
  for (const auto b : lent.blocks)
    reference(b);
  counters_.leased += lent.blocks.size();
  lent.id = ++last_lease_;
  leases_.emplace(lent.id, lease{lent.blocks, until, false});
  return lent;
}

block_lease block_manager::reserve(std::int32_t blocks, time_point until) {
  return reserve(blocks, until, {}, nullptr);
}

block_lease block_manager::reserve(std::int32_t blocks, time_point until, swap_decision swap, block_grant* grant) {
  block_lease reserved;
  for (auto left = std::min(blocks, available()); left > 0; --left)
    reserved.blocks.push_back(acquire(swap, grant));
  if (reserved.blocks.empty())
    return reserved;
  counters_.leased += reserved.blocks.size();
  reserved.id = ++last_lease_;
  leases_.emplace(reserved.id, lease{reserved.blocks, until, true});
  return reserved;
}

std::vector<std::int32_t> block_manager::adopt(std::uint64_t id, std::span<const token_id> tokens, prefix_salt salt,
                                               std::int32_t first) {
  const auto found = leases_.find(id);
  if (found == leases_.end() || !found->second.reserved)
    return {};
  auto adopted = found->second.blocks;
  chain at{salt, salt};
  auto key = kept_ ? kept_->keys.root(salt) : block_key();
  bool whole = prefix_cache_ && first >= 0 && first <= full_blocks(tokens);
  for (std::int32_t i = 0; i < first && whole; ++i) {
    whole = static_cast<bool>(follow(at, block_of(tokens, i)));
    if (kept_)
      key = kept_->keys.next(key, block_of(tokens, i));
  }
  for (std::size_t i = 0; i < adopted.size(); ++i) {
    const auto at_place = first + static_cast<std::int32_t>(i);
    whole = whole && at_place < full_blocks(tokens);
    if (!whole) {
      adopted[i] = none;
      continue;
    }
    const auto content = block_of(tokens, at_place);
    if (kept_)
      key = kept_->keys.next(key, content);
    const auto parent = at;
    if (const auto known = follow(at, content); known.block != none) {
      adopted[i] = none;
      continue;
    }
    block_content fresh{0, parent.content, hash_(parent.hash, content), {}, key, at_place};
    std::ranges::copy(content, fresh.tokens.begin());
    const auto twin = host_pool_.find(fresh.parent, fresh.hash, content);
    at = {fresh.id = twin ? host_pool_.content(*twin).id : ++last_content_, fresh.hash};
    put_into_index(adopted[i], fresh);
    ++counters_.adopted;
  }
  end(found);
  return adopted;
}

bool block_manager::give_back(std::uint64_t id) {
  const auto found = leases_.find(id);
  if (found == leases_.end())
    return false;
  end(found);
  return true;
}

void block_manager::expire(time_point now) {
  for (auto l = leases_.begin(); l != leases_.end();) {
    const auto next = std::next(l);
    if (l->second.until <= now)
      end(l);
    l = next;
  }
}

// As of a sequence, the end of a chain is evicted first.
void block_manager::end(std::map<std::uint64_t, lease>::iterator which) {
  auto& blocks = which->second.blocks;
  counters_.leased -= blocks.size();
  for (auto b = blocks.rbegin(); b != blocks.rend(); ++b)
    unreference(*b);
  leases_.erase(which);
}

// -- what is sent to other replicas -----------------------------------------------------------------------------------

void block_manager::accept(std::uint64_t request, std::int32_t first) {
  const auto found = shipments_.lower_bound({request, 0});
  if (found != shipments_.end() && found->first.request == request && found->second.next == none)
    found->second.next = std::max(first, 0);
}

// Committed blocks of running sequences do not change, and moves run behind the plans that compute them.
void block_manager::send_some(block_grant& grant) {
  for (auto& [id, s] : shipments_) {
    if (s.next == none)
      continue;
    const auto& from = sequences_.at(id);
    for (const auto end = std::min(from.committed_blocks, s.to->blocks()); s.next < end; ++s.next) {
      auto image = to_send_->take();
      if (!image) {
        grant.unsent = true;
        return;
      }
      image->place = s.next;
      counters_.sent_bytes += image->bytes.size();
      ++counters_.sent;
      grant.moves.push_back(
        {block_move::kind::save, from.table[static_cast<std::size_t>(s.next)], 0, std::move(image), s.to});
    }
  }
}

// -- what is kept outside ---------------------------------------------------------------------------------------------

// The chain up to the arrivals is lent meanwhile, so that nothing of it is evicted for them, and all of it is among the
// newest cached content afterwards.
void block_manager::arrive(const block_arrival& a, swap_decision swap, block_grant& grant) {
  const auto wanted = static_cast<std::int32_t>(a.images.size());
  const auto before = std::span(*a.tokens).first(
    std::min(a.tokens->size(), static_cast<std::size_t>(a.first) * block_size));
  const auto chain_before = lend(before, a.salt, 0, time_point::max());
  const auto reserved = reserve(wanted, time_point::max(), swap, &grant);
  const auto adopted = adopt(reserved.id, *a.tokens, a.salt, a.first);
  std::int32_t used = 0;
  for (std::size_t i = 0; i < adopted.size(); ++i)
    if (adopted[i] != none) {
      grant.moves.push_back({block_move::kind::load, 0, adopted[i], a.images[i]});
      ++used;
    }
  counters_.unwanted += static_cast<std::uint64_t>(wanted - used);
  give_back(chain_before.id);
}

// What was committed first; entries of content that was evicted meanwhile are passed over.
void block_manager::save_some(block_grant& grant) {
  const auto is_stale = [this](const auto& entry) {
    return blocks_[static_cast<std::size_t>(entry.first)].content.id != entry.second;
  };
  if (to_save_.size() > 2 * blocks_.size())
    std::erase_if(to_save_, is_stale);
  for (std::int32_t n = 0; kept_ && n < kept_->most_saves && !to_save_.empty(); to_save_.pop_front()) {
    if (is_stale(to_save_.front()))
      continue;
    if (!save(to_save_.front().first, grant))
      break;
    ++n;
  }
  grant.unsaved = !to_save_.empty();
}

bool block_manager::save(block_id id, block_grant& grant) {
  auto& b = blocks_[static_cast<std::size_t>(id)];
  auto image = kept_->images->take();
  if (!image)
    return false;
  image->key = b.content.key;
  image->place = b.content.place;
  image->tokens = b.content.tokens;
  grant.moves.push_back({block_move::kind::save, id, 0, std::move(image)});
  b.unsaved = false;
  ++counters_.kept;
  return true;
}

} // namespace troupe
