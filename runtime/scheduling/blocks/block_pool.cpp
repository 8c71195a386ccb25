#include "runtime/scheduling/blocks/block_pool.hpp"

#include <algorithm>
#include <cassert>
#include <string_view>

namespace troupe {

// splitmix64's finaliser (Steele, Lea, Flood 2014) over the tokens, seeded by the predecessor's hash.
std::uint64_t block_pool::content_hash(std::uint64_t parent, std::span<const token_id> tokens) {
  std::uint64_t h = parent ^ 0x9e3779b97f4a7c15;
  for (auto t : tokens) {
    h += static_cast<std::uint32_t>(t) + 0x9e3779b97f4a7c15;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
    h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
    h ^= h >> 31;
  }
  return h;
}

block_pool::block_pool(std::int32_t blocks, std::int32_t host_blocks, hash_fn hash)
  : hash_(hash), host_(host_blocks), blocks_(static_cast<std::size_t>(blocks)) {
  free_.reserve(blocks_.size());
  for (auto b = blocks; b-- > 0;)
    free_.push_back(b);
  counters.total = blocks_.size();
}

block_pool::place block_pool::follow(chain& at, std::span<const token_id> tokens) const {
  const auto hash = hash_(at.hash, tokens);
  place found;
  found.block = find(at.content, hash, tokens);
  if (found.block == none)
    found.slot = host_.find(at.content, hash, tokens);
  if (found) {
    at.hash = hash;
    at.content =
      (found.block != none ? blocks_[static_cast<std::size_t>(found.block)].content : host_.content(*found.slot)).id;
  }
  return found;
}

block_pool::block_id block_pool::find(std::uint64_t parent_content, std::uint64_t hash,
                                      std::span<const token_id> tokens) const {
  auto [first, last] = index_.equal_range(hash);
  for (; first != last; ++first)
    if (blocks_[static_cast<std::size_t>(first->second)].content.is(parent_content, tokens))
      return first->second;
  return none;
}

std::uint64_t block_pool::put(block_id id, block_content content, bool keep) {
  // A block that is in host memory and was recomputed keeps its content id, so that its successors are found from
  // either.
  const auto twin = host_.find(content.parent, content.hash, content.tokens);
  content.id = twin ? host_.content(*twin).id : ++last_content_;
  auto& b = blocks_[static_cast<std::size_t>(id)];
  b.content = content;
  index_.emplace(content.hash, id);
  if (keep && !twin) {
    b.unsaved = true;
    to_save_.emplace_back(id, content.id);
  }
  return content.id;
}

block_pool::block_id block_pool::acquire(swap_decision swap, block_grant* grant) {
  auto b = none;
  if (!free_.empty()) {
    b = free_.back();
    free_.pop_back();
  } else {
    assert(oldest_ != none && "demands are checked against what is available");
    evict(b = oldest_, swap, grant);
  }
  blocks_[static_cast<std::size_t>(b)].references = 1;
  ++counters.in_use;
  if (grant)
    ++grant->acquired;
  return b;
}

void block_pool::evict(block_id b, swap_decision swap, block_grant* grant) {
  unlink(b);
  auto& content = blocks_[static_cast<std::size_t>(b)].content;
  auto& unsaved = blocks_[static_cast<std::size_t>(b)].unsaved;
  auto [first, last] = index_.equal_range(content.hash);
  index_.erase(std::find_if(first, last, [b](auto& entry) { return entry.second == b; }));
  if (unsaved && !(grant && save(b, *grant))) {
    unsaved = false;
    ++counters.unkept;
  }
  bool swapped = grant && swap.swap_out && host_.refresh(content.id);
  if (grant && swap.swap_out && !swapped) {
    const auto* gone = host_.next_to_go();
    if (snapshots && gone && find(gone->parent, gone->hash, gone->tokens) == none)
      snapshots->forget(gone->id);
    if (const auto slot = host_.store(content)) {
      grant->moves.push_back({block_move::kind::swap_out, b, *slot});
      ++counters.swapped_out;
      swapped = true;
    }
  }
  // It may be in host memory from before, also if it is not worth swapping out now.
  if (snapshots && !swapped && !host_.find(content.parent, content.hash, content.tokens))
    snapshots->forget(content.id);
  content = {};
  ++counters.evicted;
  if (grant)
    ++grant->evicted;
}

void block_pool::reference(block_id id) {
  auto& b = blocks_[static_cast<std::size_t>(id)];
  if (b.references++ == 0) {
    unlink(id);
    ++counters.in_use;
  }
}

void block_pool::unreference(block_id id) {
  auto& b = blocks_[static_cast<std::size_t>(id)];
  if (--b.references > 0)
    return;
  --counters.in_use;
  if (b.content.id == 0) {
    free_.push_back(id);
    return;
  }
  b.older = newest_;
  b.newer = none;
  (newest_ == none ? oldest_ : blocks_[static_cast<std::size_t>(newest_)].newer) = id;
  newest_ = id;
  ++counters.cached;
}

void block_pool::unlink(block_id id) {
  auto& b = blocks_[static_cast<std::size_t>(id)];
  (b.older == none ? oldest_ : blocks_[static_cast<std::size_t>(b.older)].newer) = b.newer;
  (b.newer == none ? newest_ : blocks_[static_cast<std::size_t>(b.newer)].older) = b.older;
  --counters.cached;
}

bool block_pool::is_shared(block_id id) const {
  const auto& b = blocks_[static_cast<std::size_t>(id)];
  return b.references > 1 || b.content.id != 0;
}

block_pool::block_id block_pool::restore(host_block_pool::slot_id slot, swap_decision swap, block_grant& grant) {
  const auto b = acquire(swap, &grant);
  put(b, host_.content(slot));
  grant.moves.push_back({block_move::kind::swap_in, slot, b});
  ++counters.swapped_in;
  return b;
}

// Entries of content that was evicted meanwhile are passed over.
void block_pool::save_some(block_grant& grant) {
  const auto is_stale = [this](const auto& entry) {
    return blocks_[static_cast<std::size_t>(entry.first)].content.id != entry.second;
  };
  if (to_save_.size() > 2 * blocks_.size())
    std::erase_if(to_save_, is_stale);
  for (std::int32_t n = 0; kept && n < kept->most_saves && !to_save_.empty(); to_save_.pop_front()) {
    if (is_stale(to_save_.front()))
      continue;
    if (!save(to_save_.front().first, grant))
      break;
    ++n;
  }
  save_state(grant);
  grant.unsaved = !to_save_.empty() || !states_to_save_.empty();
}

void block_pool::keep_state(const block_content& behind) {
  if (!kept || !kept->states ||
      std::ranges::find(states_to_save_, behind.id, &block_content::id) != states_to_save_.end())
    return;
  std::erase_if(states_to_save_, [this](const block_content& each) { return !snapshots->find(each.id); });
  states_to_save_.push_back(behind);
}

// One in a grant: a state is as large as many blocks.
void block_pool::save_state(block_grant& grant) {
  for (; !states_to_save_.empty(); states_to_save_.pop_front()) {
    const auto& behind = states_to_save_.front();
    const auto slot = snapshots->find(behind.id);
    if (!slot)
      continue; // given up meanwhile
    auto image = kept->states->take();
    if (!image)
      return;
    image->key = kept->keys.of_state(behind.key);
    image->place = behind.place;
    image->tokens = behind.tokens;
    image->state = true;
    grant.moves.push_back({block_move::kind::save, *slot, 0, std::move(image)});
    ++counters.states_kept;
    states_to_save_.pop_front();
    return;
  }
}

bool block_pool::save(block_id id, block_grant& grant) {
  auto& b = blocks_[static_cast<std::size_t>(id)];
  auto image = kept->images->take();
  if (!image)
    return false;
  image->key = b.content.key;
  image->place = b.content.place;
  image->tokens = b.content.tokens;
  grant.moves.push_back({block_move::kind::save, id, 0, std::move(image)});
  b.unsaved = false;
  ++counters.kept;
  return true;
}

std::string block_pool::map() const {
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
      see(i, kept && !b.unsaved && b.content.key != block_key{} ? 2 : 1);
  }
  std::string cells;
  for (const auto use : uses)
    cells += in_order[use];
  return cells;
}

void block_pool::count(block_counters& into) const {
  into.host_total = host_.total();
  into.host_in_use = host_.in_use();
  into.unusable = into.total - into.in_use - static_cast<std::uint64_t>(available());
  if (snapshots)
    snapshots->count(into);
}

} // namespace troupe
