// Grants the blocks of the paged KV cache to sequences: block tables, shared prefixes, copies on write. Which block is
// free, cached or evicted is block_pool's. Never sees K/V data. Owned by the kv_block_manager actor; single-threaded.
//
// Content leaves and comes, too. What is committed is kept outside, once: it is listed to be saved to images as there
// are any, at the latest when it is evicted. Or it is sent to another replica, while the sequence is there: likewise.
// What arrives is adopted: it becomes cached content, no more; whatever of it is late, missing, or has no room is
// computed.
//
// Safe because steps run in the order in which they are planned: a block released while a planned step still uses it
// can only be granted to a later step, and moves run in the order of the grants.
#pragma once

#include "runtime/scheduling/blocks/block_counters.hpp"
#include "runtime/scheduling/blocks/block_pool.hpp"
#include "runtime/scheduling/blocks/block_snapshots.hpp"
#include "runtime/scheduling/step.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// That content is sent to other replicas, or comes from them.
struct sent_elsewhere {
  std::shared_ptr<const image_pool> images;      // in which it travels
  std::array<std::uint64_t, 2> numerics{};       // the hash of the id under which blocks are exchanged
  std::shared_ptr<const image_pool> states = {}; // for snapshots of states; null: they do not travel
};

class block_manager {
public:
  using hash_fn = block_pool::hash_fn;

  /// `host_blocks`: slots of host memory for cached blocks that are evicted.
  block_manager(std::int32_t blocks, bool prefix_cache, std::int32_t host_blocks = 0,
                hash_fn hash = block_pool::content_hash)
    : prefix_cache_(prefix_cache), pool_(blocks, host_blocks, hash) {}

  /// Before anything is served.
  void keep_outside(kept_outside how) { pool_.kept = std::move(how); }

  /// `states`: with the blocks of a prompt, also the last snapshot; null: none.
  void send_with(std::shared_ptr<const image_pool> images, std::shared_ptr<const image_pool> states = {}) {
    to_send_ = std::move(images);
    states_to_send_ = std::move(states);
  }
  /// Before anything is served: sequences have states, and cached prefixes end with a snapshot of them.
  void keep_snapshots(state_snapshots where) { pool_.snapshots = std::move(where); }

  block_grant serve(const block_request& request);

  /// Whoever is to get a request's blocks (block_destination) has those before place `first`, and takes the others:
  /// grants list them to be saved, as they are committed and there are images. Unknown requests are ignored.
  void accept(std::uint64_t request, std::int32_t first);

  /// What of a chain is cached, from its start.
  block_found look_up(const block_lookup& l) const;

  /// A chain of another replica has ended before it was whole.
  void count_incomplete() { ++pool_.counters.incomplete; }

  block_counters counters() const;

  /// What each block holds, a character for each: 'f' nothing, 'c' cached content, 'd' cached content that is kept
  /// outside, too, '1' what one sequence refers to, '2' to '9' what so many share (or more).
  /// Of a large pool a character stands for several blocks, as many as there are: the one in most use.
  std::string map() const { return pool_.map(); }

private:
  friend struct block_audit; // tests/simulation

  using block_id = block_pool::block_id;
  using chain = block_pool::chain;
  static constexpr std::int32_t block_size = kernels::block_tokens;
  static constexpr block_id none = block_pool::none;

  struct sequence {
    std::vector<block_id> table;
    std::int32_t length = 0;           // positions granted
    std::int32_t committed_blocks = 0; // full blocks in the index
    std::uint64_t content = 0;         // of the last committed block
    std::uint64_t hash = 0;
    std::uint64_t root = 0;     // of its chain
    std::vector<token_id> tail; // committed tokens of the block not yet full
    block_key key;              // of the last committed block, if content is kept outside
    sequence_snapshots snapshots;
  };

  /// Blocks of a sequence that another replica gets.
  struct shipment {
    block_destination_ptr to;
    std::int32_t next = none; // place of the next one; none: they are not accepted yet
    bool with_state = true;   // a snapshot follows
  };

  /// A block in host memory that a sequence being opened shares.
  struct host_hit {
    std::size_t place; // in the block table
    host_block_pool::slot_id slot;
  };

  void commit(const block_commit& c);
  void fork(const block_fork& f);
  void release(sequence_id id);
  block_answer answer(const block_demand& d, swap_decision swap, block_grant& grant);

  void index_full_block(sequence& s);
  void drop_snapshots(sequence& s, std::int32_t length);
  void truncate(sequence& s, std::int32_t length);
  void shorten(sequence& s, std::int32_t length);
  std::vector<host_hit> open(sequence& s, const std::vector<token_id>& tokens, std::int32_t most, prefix_salt salt,
                             bool from_host);
  bool has(sequence_id id, std::int32_t positions) const;
  void let_go(std::vector<host_hit>& hits);
  void arrive(const block_arrival& a, swap_decision swap, block_grant& grant);
  void adopt_state(const block_arrival& a, const block_image_ptr& image, block_grant& grant);
  void send_some(block_grant& grant);
  bool send_state(const sequence& from, shipment& s, block_grant& grant);
  void swap_in(sequence& s, std::vector<host_hit>& hits, swap_decision swap, block_grant& grant);

  bool prefix_cache_;
  block_pool pool_;
  std::map<sequence_id, sequence> sequences_;
  std::map<sequence_id, shipment> shipments_;
  std::shared_ptr<const image_pool> to_send_; // null: nothing is sent
  std::shared_ptr<const image_pool> states_to_send_;
};

} // namespace troupe
