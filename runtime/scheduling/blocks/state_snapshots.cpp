#include "runtime/scheduling/blocks/state_snapshots.hpp"

namespace troupe {

state_snapshots::state_snapshots(slot_id first, std::int32_t count)
  : first_(first), entries_(static_cast<std::size_t>(count)) {
  for (auto slot = first + count; slot-- > first;)
    free_.push_back(slot);
}

std::optional<state_snapshots::slot_id> state_snapshots::take() {
  if (free_.empty()) {
    const entry* oldest = nullptr;
    for (const auto& e : entries_)
      if (e.content != 0 && (!oldest || e.last_use < oldest->last_use))
        oldest = &e;
    if (!oldest)
      return std::nullopt;
    ++evicted_;
    forget(oldest->content);
  }
  const auto slot = free_.back();
  free_.pop_back();
  return slot;
}

bool state_snapshots::attach(content_id content, slot_id slot) {
  if (const auto [_, added] = by_content_.emplace(content, slot); !added) {
    give_back(slot);
    return false;
  }
  at(slot) = {content, ++clock_, false};
  return true;
}

void state_snapshots::give_back(slot_id slot) { release(slot); }

std::optional<state_snapshots::slot_id> state_snapshots::find(content_id content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? std::nullopt : std::optional(found->second);
}

void state_snapshots::use(slot_id slot) {
  auto& e = at(slot);
  e.last_use = ++clock_;
  e.used = true;
  ++restored_;
}

void state_snapshots::forget(content_id content) {
  const auto found = by_content_.find(content);
  if (found == by_content_.end())
    return;
  release(found->second);
  by_content_.erase(found);
}

void state_snapshots::forget_unused(content_id content) {
  if (const auto slot = find(content); slot && !at(*slot).used)
    forget(content);
}

void state_snapshots::release(slot_id slot) {
  at(slot) = {};
  free_.push_back(slot);
}

void state_snapshots::count(block_counters& into) const {
  into.snapshots = entries_.size();
  into.snapshots_in_use = entries_.size() - free_.size();
  into.snapshots_restored = restored_;
  into.snapshots_evicted = evicted_;
}

} // namespace troupe
