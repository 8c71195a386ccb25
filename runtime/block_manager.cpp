#include "runtime/block_manager.hpp"

#include <algorithm>
#include <cassert>

namespace troupe {

namespace {

constexpr std::int32_t block_size = kernels::block_tokens;

std::int32_t blocks_for(std::int32_t tokens) {
  return (tokens + block_size - 1) / block_size;
}

} // namespace

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

block_manager::block_manager(std::int32_t blocks, bool prefix_cache, hash_fn hash)
  : prefix_cache_(prefix_cache), hash_(hash), blocks_(static_cast<std::size_t>(blocks)) {
  free_.reserve(blocks_.size());
  for (auto b = blocks; b-- > 0;)
    free_.push_back(b);
  counters_.total = blocks_.size();
}

block_grant block_manager::serve(const block_request& request) {
  block_grant grant;
  for (auto& c : request.commits)
    commit(c);
  for (auto& f : request.forks)
    fork(f);
  for (auto id : request.releases)
    release(id);
  grant.answers.reserve(request.demands.size());
  bool refused = false;
  for (auto& d : request.demands) {
    grant.answers.push_back(d.open && refused ? block_answer{.sequence = d.sequence} : answer(d, grant));
    refused = refused || (d.open && grant.answers.back().rows == 0);
  }
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
  if (known == none) {
    auto& b = blocks_[static_cast<std::size_t>(own)];
    b.content = ++last_content_;
    b.parent_content = s.content;
    b.hash = hash;
    std::copy(s.tail.begin(), s.tail.end(), b.tokens.begin());
    index_.emplace(hash, own);
  } else if (known != own) {
    // Somebody computed the same content meanwhile, to the same bits: keep one of the two.
    reference(known);
    unreference(own);
    own = known;
  }
  s.content = blocks_[static_cast<std::size_t>(own)].content;
  s.hash = hash;
  ++s.committed_blocks;
  s.tail.clear();
}

void block_manager::fork(const block_fork& f) {
  auto from = sequences_.find(f.from);
  if (from == sequences_.end())
    return;
  auto [to, inserted] = sequences_.try_emplace(f.to, from->second);
  if (inserted)
    for (auto b : to->second.table)
      reference(b);
}

void block_manager::release(sequence_id id) {
  auto found = sequences_.find(id);
  if (found == sequences_.end())
    return;
  // Last block first: the end of a chain is of use only with its beginning, so it is evicted before it.
  auto& table = found->second.table;
  for (auto b = table.rbegin(); b != table.rend(); ++b)
    unreference(*b);
  sequences_.erase(found);
}

block_answer block_manager::answer(const block_demand& d, block_grant& grant) {
  block_answer a{d.sequence};
  auto found = sequences_.find(d.sequence);
  const bool opening = found == sequences_.end();
  if (opening) {
    if (!d.open)
      return a;
    found = sequences_.try_emplace(d.sequence).first;
    open(found->second, *d.open);
  }
  auto& s = found->second;
  auto wanted = d.rows;
  if (opening)
    wanted = std::min(wanted, static_cast<std::int32_t>(d.open->size()) - s.length);

  // Blocks to be had for this demand; one of them goes for the copy of a shared partial block.
  const auto partial = s.length % block_size;
  const bool copy = partial != 0 && blocks_[static_cast<std::size_t>(s.table.back())].references > 1;
  auto room = available() - d.spare - (copy ? 1 : 0);
  if (room >= 0)
    a.rows = std::min(wanted, room * block_size + (partial ? block_size - partial : 0));
  if (a.rows <= 0) {
    a.rows = 0;
    if (opening)
      release(d.sequence);
    return a;
  }
  if (opening) {
    counters_.looked_up_tokens += d.open->size();
    counters_.found_tokens += static_cast<std::uint64_t>(s.length);
  }
  if (copy) {
    auto fresh = take();
    grant.copies.push_back({s.table.back(), fresh});
    unreference(s.table.back());
    s.table.back() = fresh;
    ++counters_.copied;
  }
  a.first_position = s.length;
  s.length += a.rows;
  while (static_cast<std::int32_t>(s.table.size()) < blocks_for(s.length))
    s.table.push_back(take());
  a.first_block = static_cast<std::int32_t>(grant.tables.size());
  a.blocks = static_cast<std::int32_t>(s.table.size());
  grant.tables.insert(grant.tables.end(), s.table.begin(), s.table.end());
  return a;
}

void block_manager::open(sequence& s, const std::vector<token_id>& tokens) {
  if (!prefix_cache_ || tokens.empty())
    return;
  // The last token is always computed anew: somebody wants its logits.
  const auto usable = (tokens.size() - 1) / block_size;
  for (std::size_t i = 0; i < usable; ++i) {
    auto chunk = std::span(tokens).subspan(i * block_size, block_size);
    auto hash = hash_(s.hash, chunk);
    auto b = find(s.content, hash, chunk);
    if (b == none)
      break;
    reference(b);
    s.table.push_back(b);
    s.content = blocks_[static_cast<std::size_t>(b)].content;
    s.hash = hash;
    ++s.committed_blocks;
    s.length += block_size;
  }
}

block_manager::block_id block_manager::find(std::uint64_t parent_content, std::uint64_t hash,
                                            std::span<const token_id> tokens) const {
  auto [first, last] = index_.equal_range(hash);
  for (; first != last; ++first) {
    auto& b = blocks_[static_cast<std::size_t>(first->second)];
    if (b.parent_content == parent_content && std::equal(tokens.begin(), tokens.end(), b.tokens.begin()))
      return first->second;
  }
  return none;
}

block_manager::block_id block_manager::take() {
  auto b = none;
  if (!free_.empty()) {
    b = free_.back();
    free_.pop_back();
  } else {
    assert(oldest_ != none && "demands are checked against what is available");
    b = oldest_;
    unlink(b);
    auto [first, last] = index_.equal_range(blocks_[static_cast<std::size_t>(b)].hash);
    index_.erase(std::find_if(first, last, [b](auto& entry) { return entry.second == b; }));
    blocks_[static_cast<std::size_t>(b)].content = 0;
    ++counters_.evicted;
  }
  blocks_[static_cast<std::size_t>(b)].references = 1;
  ++counters_.in_use;
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
  if (b.content == 0) {
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
