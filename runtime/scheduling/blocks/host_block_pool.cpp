#include "runtime/scheduling/blocks/host_block_pool.hpp"

#include <algorithm>

namespace troupe {

bool block_content::is(std::uint64_t parent_id, std::span<const token_id> own) const {
  return parent == parent_id && std::equal(own.begin(), own.end(), tokens.begin(), tokens.end());
}

host_block_pool::host_block_pool(std::int32_t slots) : slots_(static_cast<std::size_t>(slots)) {
  for (slot_id id = 0; id < slots; ++id)
    slots_[static_cast<std::size_t>(id)].place = order_.insert(order_.end(), id);
}

std::optional<host_block_pool::slot_id> host_block_pool::find(std::uint64_t parent, std::uint64_t hash,
                                                              std::span<const token_id> tokens) const {
  auto [first, last] = index_.equal_range(hash);
  for (; first != last; ++first)
    if (content(first->second).is(parent, tokens))
      return first->second;
  return std::nullopt;
}

bool host_block_pool::refresh(std::uint64_t content_id) {
  const auto found = by_id_.find(content_id);
  if (found == by_id_.end())
    return false;
  if (auto& s = slots_[static_cast<std::size_t>(found->second)]; !s.held)
    order_.splice(order_.end(), order_, s.place);
  return true;
}

const block_content* host_block_pool::next_to_go() const {
  return order_.empty() || content(order_.front()).id == 0 ? nullptr : &content(order_.front());
}

std::optional<host_block_pool::slot_id> host_block_pool::store(const block_content& content) {
  if (order_.empty())
    return std::nullopt;
  const auto id = order_.front();
  clear(id);
  slots_[static_cast<std::size_t>(id)].content = content;
  index_.emplace(content.hash, id);
  by_id_.emplace(content.id, id);
  order_.splice(order_.end(), order_, order_.begin());
  return id;
}

void host_block_pool::hold(slot_id id) {
  auto& s = slots_[static_cast<std::size_t>(id)];
  order_.erase(s.place);
  s.held = true;
}

void host_block_pool::release(slot_id id) {
  auto& s = slots_[static_cast<std::size_t>(id)];
  s.place = order_.insert(order_.end(), id);
  s.held = false;
}

void host_block_pool::clear(slot_id id) {
  const auto& old = content(id);
  if (old.id == 0)
    return;
  auto [first, last] = index_.equal_range(old.hash);
  index_.erase(std::find_if(first, last, [id](auto& entry) { return entry.second == id; }));
  by_id_.erase(old.id);
}

} // namespace troupe
