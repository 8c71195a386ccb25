#include "runtime/scheduling/blocks/content_exchange.hpp"

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

/// Blocks with a snapshot that a sequence may begin behind: its last token is always computed.
std::int32_t most_reached(std::span<const token_id> tokens) {
  return tokens.empty() ? 0 : static_cast<std::int32_t>(tokens.size() - 1) / kernels::block_tokens;
}

} // namespace

block_found content_exchange::look_up(const block_lookup& l) const {
  block_found found;
  block_key key;
  if (pool_.kept)
    found.key = key = pool_.kept->keys.root(l.salt);
  chain at{l.salt, l.salt};
  while (prefix_cache_ && found.blocks < full_blocks(*l.tokens)) {
    const auto tokens = block_of(*l.tokens, found.blocks);
    if (!pool_.follow(at, tokens))
      break;
    if (pool_.kept)
      key = pool_.kept->keys.next(key, tokens);
    ++found.blocks;
    if (pool_.snapshots && !(found.blocks <= most_reached(*l.tokens) && pool_.snapshots->find(at.content)))
      continue;
    found.reached = found.blocks;
    found.key = key;
  }
  return found;
}

// -- what is sent to other replicas -----------------------------------------------------------------------------------

void content_exchange::offer(sequence_id id, const block_destination_ptr& to, block_grant& grant) {
  if (!to_send_)
    return;
  shipments_.insert_or_assign(id, shipment{to});
  grant.offers.push_back(to);
}

void content_exchange::accept(std::uint64_t request, std::int32_t first) {
  const auto found = shipments_.lower_bound({request, 0});
  if (found != shipments_.end() && found->first.request == request && found->second.next == none)
    found->second.next = std::max(first, 0);
}

// Committed blocks of running sequences do not change, and moves run behind the plans that compute them.
void content_exchange::send_some(const sequences& all, block_grant& grant) {
  for (auto& [id, s] : shipments_) {
    if (s.next == none)
      continue;
    const auto& from = all.at(id);
    for (const auto end = std::min(from.committed_blocks, s.to->blocks()); s.next < end; ++s.next) {
      auto image = to_send_->take();
      if (!image) {
        grant.unsent = true;
        return;
      }
      image->place = s.next;
      pool_.counters.sent_bytes += image->bytes.size();
      ++pool_.counters.sent;
      grant.moves.push_back(
        {block_move::kind::save, from.table[static_cast<std::size_t>(s.next)], 0, std::move(image), s.to});
    }
    if (pool_.snapshots && states_to_send_ && s.with_state && s.next >= s.to->blocks() &&
        from.committed_blocks >= s.to->blocks() && !send_state(from, s, grant)) {
      grant.unsent = true;
      return;
    }
  }
}

// The last one that the prompt has, if there is one. False if it must wait.
bool content_exchange::send_state(const sequence_blocks& from, shipment& s, block_grant& grant) {
  for (auto place = most_reached(*s.to->tokens); place-- > 0;)
    if (const auto slot = pool_.snapshots->find(pool_.content(from.table[static_cast<std::size_t>(place)]).id)) {
      auto image = states_to_send_->take();
      if (!image)
        return false;
      image->place = place;
      image->state = true;
      pool_.counters.sent_bytes += image->bytes.size();
      ++pool_.counters.states_sent;
      grant.moves.push_back({block_move::kind::save, *slot, 0, std::move(image), s.to});
      break;
    }
  s.with_state = false;
  return true;
}

// -- what is kept outside ---------------------------------------------------------------------------------------------

// The blocks before the arrivals are referenced meanwhile, so that nothing of the chain is evicted for them, and all of it
// is among the newest cached content afterwards.
void content_exchange::arrive(const block_arrival& a, swap_decision swap, block_grant& grant) {
  const auto chain_blocks = full_blocks(*a.tokens);
  std::vector<block_id> before;
  chain at{a.salt, a.salt};
  while (std::ssize(before) < std::min(a.first, chain_blocks)) {
    const auto found = pool_.follow(at, block_of(*a.tokens, static_cast<std::int32_t>(before.size())));
    if (found.block == none)
      break;
    pool_.reference(before.emplace_back(found.block));
  }
  std::vector<block_id> room;
  for (auto left = std::min(static_cast<std::int32_t>(a.images.size()), pool_.available()); left > 0; --left)
    room.push_back(pool_.acquire(swap, &grant));
  at = {a.salt, a.salt};
  auto key = pool_.kept ? pool_.kept->keys.root(a.salt) : block_key();
  bool whole = prefix_cache_ && a.first >= 0 && a.first <= chain_blocks;
  for (std::int32_t i = 0; i < a.first && whole; ++i) {
    whole = static_cast<bool>(pool_.follow(at, block_of(*a.tokens, i)));
    if (pool_.kept)
      key = pool_.kept->keys.next(key, block_of(*a.tokens, i));
  }
  std::size_t used = 0;
  for (std::size_t i = 0; i < room.size() && whole; ++i) {
    const auto place = a.first + static_cast<std::int32_t>(i);
    if (place >= chain_blocks)
      break;
    const auto content = block_of(*a.tokens, place);
    if (pool_.kept)
      key = pool_.kept->keys.next(key, content);
    const auto parent = at;
    if (pool_.follow(at, content).block != none)
      continue;
    block_content fresh{0, parent.content, pool_.hash(parent.hash, content), {}, key, place};
    std::ranges::copy(content, fresh.tokens.begin());
    at = {pool_.put(room[i], fresh), fresh.hash};
    grant.moves.push_back({block_move::kind::load, 0, room[i], a.images[i]});
    ++used;
  }
  for (const auto& image : a.states)
    adopt_state(a, image, grant);
  pool_.counters.adopted += used;
  pool_.counters.unwanted += a.images.size() - used;
  // The end of a chain is evicted first.
  for (const auto& blocks : {room, before})
    for (auto b = blocks.rbegin(); b != blocks.rend(); ++b)
      pool_.unreference(*b);
}

void content_exchange::adopt_state(const block_arrival& a, const block_image_ptr& image, block_grant& grant) {
  if (!pool_.snapshots || !prefix_cache_ || image->place < 0 || image->place >= full_blocks(*a.tokens))
    return;
  chain at{a.salt, a.salt};
  for (std::int32_t i = 0; i <= image->place; ++i)
    if (!pool_.follow(at, block_of(*a.tokens, i)))
      return;
  const auto slot = pool_.snapshots->find(at.content) ? std::nullopt : pool_.snapshots->take();
  if (!slot)
    return;
  pool_.snapshots->attach(at.content, *slot);
  ++pool_.counters.states_adopted;
  grant.moves.push_back({block_move::kind::load, 0, *slot, image});
}

} // namespace troupe
