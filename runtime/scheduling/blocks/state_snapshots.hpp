// Which slots hold which snapshots of recurrent layers' states. A snapshot belongs to the content of a full block: it
// is the state behind it. Slots that are taken are pending until they are attached, given back, or forgotten; the least
// recently used snapshot is given up for another. Part of a block_manager; single-threaded.
#pragma once

#include "runtime/scheduling/blocks/block_counters.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace troupe {

class state_snapshots {
public:
  using content_id = std::uint64_t; // of a block; never 0
  using slot_id = std::int32_t;

  /// Slots `first` to first + count - 1.
  state_snapshots(slot_id first, std::int32_t count);

  /// A slot for a snapshot to come. Nothing if all slots are pending.
  std::optional<slot_id> take();

  /// The slot holds the state behind that content, and is given back if another does already. Returns whether it was
  /// new.
  bool attach(content_id content, slot_id slot);

  /// A slot that was taken is not needed.
  void give_back(slot_id slot);

  std::optional<slot_id> find(content_id content) const;

  /// A prefix that ends with this snapshot was used.
  void use(slot_id slot);

  /// The content is gone.
  void forget(content_id content);

  /// Forgets the content, unless its snapshot was used.
  void forget_unused(content_id content);

  void count(block_counters& into) const;

  /// Snapshots that contents have.
  std::size_t attached() const { return by_content_.size(); }

private:
  struct entry {
    content_id content = 0; // 0: free or pending
    std::uint64_t last_use = 0;
    bool used = false;
  };

  entry& at(slot_id slot) { return entries_[static_cast<std::size_t>(slot - first_)]; }
  void release(slot_id slot);

  slot_id first_;
  std::vector<entry> entries_;
  std::vector<slot_id> free_;
  std::unordered_map<content_id, slot_id> by_content_;
  std::uint64_t clock_ = 0, restored_ = 0, evicted_ = 0;
};

} // namespace troupe
