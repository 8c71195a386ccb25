// The host tier of the KV cache: which host slot holds the K/V of which content. Accounting only. Owned by the block
// manager. Slots are reused oldest first, except those held because they are about to be read.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/scheduling/block_image.hpp"
#include "runtime/support/types.hpp"

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

/// The content of a full block. Its id is never reused, so that a chain of blocks is matched exactly: the predecessor
/// by id, the block's own tokens one by one. The hash only finds candidates.
struct block_content {
  std::uint64_t id = 0; // 0: none
  std::uint64_t parent = 0;
  std::uint64_t hash = 0;
  std::array<token_id, kernels::block_tokens> tokens{};
  // If content is kept outside:
  block_key key = {};
  std::int32_t place = 0; // in its chain

  bool is(std::uint64_t parent_id, std::span<const token_id> own) const;
};

class host_block_pool {
public:
  using slot_id = std::int32_t;

  explicit host_block_pool(std::int32_t slots);

  /// The slot that holds these tokens with that predecessor.
  std::optional<slot_id> find(std::uint64_t parent, std::uint64_t hash, std::span<const token_id> tokens) const;
  const block_content& content(slot_id slot) const { return slots_[static_cast<std::size_t>(slot)].content; }

  /// Whether a slot holds this content, which then counts as the newest.
  bool refresh(std::uint64_t content_id);

  /// What `store` would replace; null: nothing.
  const block_content* next_to_go() const;

  /// Stores this content in the oldest slot, replacing its content; none if all slots are held.
  std::optional<slot_id> store(const block_content& content);

  /// Keeps a slot from being reused until it is released, as the newest.
  void hold(slot_id slot);
  void release(slot_id slot);

  std::size_t total() const { return slots_.size(); }
  std::size_t in_use() const { return by_id_.size(); }

private:
  struct slot {
    block_content content;
    std::list<slot_id>::iterator place; // in `order_`, unless held
    bool held = false;
  };

  void clear(slot_id id);

  std::vector<slot> slots_;
  std::list<slot_id> order_; // oldest first; unused ones before all others
  std::unordered_multimap<std::uint64_t, slot_id> index_;
  std::unordered_map<std::uint64_t, slot_id> by_id_;
};

} // namespace troupe
