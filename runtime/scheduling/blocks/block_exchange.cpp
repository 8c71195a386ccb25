// The part of class block_manager by which content leaves the pool and comes to it.
#include "runtime/scheduling/blocks/block_manager.hpp"

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

// The blocks before the arrivals are referenced meanwhile, so that nothing of the chain is evicted for them, and all of it
// is among the newest cached content afterwards. Images that have no room, no predecessor, or known content are dropped.
void block_manager::arrive(const block_arrival& a, swap_decision swap, block_grant& grant) {
  const auto chain_blocks = full_blocks(*a.tokens);
  std::vector<block_id> before;
  chain at{a.salt, a.salt};
  while (std::ssize(before) < std::min(a.first, chain_blocks)) {
    const auto found = follow(at, block_of(*a.tokens, static_cast<std::int32_t>(before.size())));
    if (found.block == none)
      break;
    reference(before.emplace_back(found.block));
  }
  std::vector<block_id> room;
  for (auto left = std::min(static_cast<std::int32_t>(a.images.size()), available()); left > 0; --left)
    room.push_back(acquire(swap, &grant));
  at = {a.salt, a.salt};
  auto key = kept_ ? kept_->keys.root(a.salt) : block_key();
  bool whole = prefix_cache_ && a.first >= 0 && a.first <= chain_blocks;
  for (std::int32_t i = 0; i < a.first && whole; ++i) {
    whole = static_cast<bool>(follow(at, block_of(*a.tokens, i)));
    if (kept_)
      key = kept_->keys.next(key, block_of(*a.tokens, i));
  }
  std::size_t used = 0;
  for (std::size_t i = 0; i < room.size() && whole; ++i) {
    const auto place = a.first + static_cast<std::int32_t>(i);
    if (place >= chain_blocks)
      break;
    const auto content = block_of(*a.tokens, place);
    if (kept_)
      key = kept_->keys.next(key, content);
    const auto parent = at;
    if (follow(at, content).block != none)
      continue;
    block_content fresh{0, parent.content, hash_(parent.hash, content), {}, key, place};
    std::ranges::copy(content, fresh.tokens.begin());
    const auto twin = host_pool_.find(fresh.parent, fresh.hash, content);
    at = {fresh.id = twin ? host_pool_.content(*twin).id : ++last_content_, fresh.hash};
    put_into_index(room[i], fresh);
    grant.moves.push_back({block_move::kind::load, 0, room[i], a.images[i]});
    ++used;
  }
  counters_.adopted += used;
  counters_.unwanted += a.images.size() - used;
  // The end of a chain is evicted first.
  for (const auto& blocks : {room, before})
    for (auto b = blocks.rbegin(); b != blocks.rend(); ++b)
      unreference(*b);
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
