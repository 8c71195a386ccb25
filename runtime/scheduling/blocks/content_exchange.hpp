// How content leaves a pool for other replicas, and how content that was kept outside comes back. What arrives becomes
// cached content, no more; whatever of it is late, missing, or has no room is computed. Part of a block_manager;
// single-threaded.
#pragma once

#include "runtime/scheduling/blocks/block_pool.hpp"
#include "runtime/scheduling/blocks/sequence_blocks.hpp"
#include "runtime/scheduling/step.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace troupe {

class content_exchange {
public:
  using sequences = std::map<sequence_id, sequence_blocks>;

  /// Without `prefix_cache`, nothing is found and nothing arrives.
  content_exchange(block_pool& pool, bool prefix_cache) : pool_(pool), prefix_cache_(prefix_cache) {}

  /// See block_manager.
  void send_with(std::shared_ptr<const image_pool> images, std::shared_ptr<const image_pool> states) {
    to_send_ = std::move(images);
    states_to_send_ = std::move(states);
  }
  block_found look_up(const block_lookup& l) const;

  /// The sequence's blocks are offered to another replica, if any are sent at all.
  void offer(sequence_id id, const block_destination_ptr& to, block_grant& grant);
  void accept(std::uint64_t request, std::int32_t first);
  /// Committed blocks of those who were accepted, as far as there are images.
  void send_some(const sequences& all, block_grant& grant);
  void forget(sequence_id id) { shipments_.erase(id); }

  /// Images that have no room, no predecessor, or known content are dropped.
  void arrive(const block_arrival& a, swap_decision swap, block_grant& grant);

private:
  friend struct block_audit; // tests/simulation

  using block_id = block_pool::block_id;
  using chain = block_pool::chain;
  static constexpr block_id none = block_pool::none;

  /// Blocks of a sequence that another replica gets.
  struct shipment {
    block_destination_ptr to;
    std::int32_t next = none; // place of the next one; none: they are not accepted yet
    bool with_state = true;   // a snapshot follows
  };

  bool send_state(const sequence_blocks& from, shipment& s, block_grant& grant);
  void adopt_state(const block_arrival& a, const block_image_ptr& image, block_grant& grant);

  block_pool& pool_;
  const bool prefix_cache_;
  std::map<sequence_id, shipment> shipments_;
  std::shared_ptr<const image_pool> to_send_; // null: nothing is sent
  std::shared_ptr<const image_pool> states_to_send_;
};

} // namespace troupe
