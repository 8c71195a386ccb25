#include "runtime/scheduling/routing/prefix_memory.hpp"

#include <algorithm>

namespace troupe {

prefix_memory::prefix_memory(std::size_t blocks, std::size_t bytes) : most_(std::min(blocks, bytes / bytes_each)) {}

// A sequence that uses a block uses all before it, and these after it; so what is left of a chain is its beginning.
std::size_t prefix_memory::known(std::span<const std::uint64_t> chain) const {
  return static_cast<std::size_t>(std::ranges::partition_point(chain, [&](auto h) { return index_.contains(h); }) -
                                  chain.begin());
}

void prefix_memory::use(std::span<const std::uint64_t> chain) {
  chain = chain.first(std::min(chain.size(), most_));
  for (auto hash = chain.rbegin(); hash != chain.rend(); ++hash) {
    if (const auto found = index_.find(*hash); found != index_.end()) {
      unlink(found->second);
      link_newest(found->second);
      continue;
    }
    auto at = static_cast<place>(entries_.size());
    if (entries_.size() < most_) {
      entries_.emplace_back();
    } else {
      at = oldest_;
      unlink(at);
      index_.erase(entries_[at].hash);
    }
    entries_[at].hash = *hash;
    index_.emplace(*hash, at);
    link_newest(at);
  }
}

void prefix_memory::unlink(place at) {
  auto& e = entries_[at];
  (e.older == none ? oldest_ : entries_[e.older].newer) = e.newer;
  (e.newer == none ? newest_ : entries_[e.newer].older) = e.older;
}

void prefix_memory::link_newest(place at) {
  entries_[at].older = newest_;
  entries_[at].newer = none;
  (newest_ == none ? oldest_ : entries_[newest_].newer) = at;
  newest_ = at;
}

} // namespace troupe
