// Accounts for the blocks of the paged KV cache: free list, reference counts, block tables, prefix index, eviction
// order, and the evicted blocks kept in host memory. Never sees K/V data. Owned by the kv_block_manager actor;
// single-threaded.
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
#include "runtime/scheduling/blocks/host_block_pool.hpp"
#include "runtime/scheduling/blocks/state_snapshots.hpp"
#include "runtime/scheduling/step.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// That content is kept outside, and how it gets there.
struct kept_outside {
  block_keys keys;
  std::shared_ptr<const image_pool> images; // to save to
  std::int32_t most_saves = 16;             // in a grant, beside those of evicted blocks
};

/// That content is sent to other replicas, or comes from them.
struct sent_elsewhere {
  std::shared_ptr<const image_pool> images; // in which it travels
  std::array<std::uint64_t, 2> numerics{};  // the hash of the id under which blocks are exchanged
};

class block_manager {
public:
  /// Hashes the tokens of one block, given its predecessor's hash. Tests replace it to force collisions.
  using hash_fn = std::uint64_t (*)(std::uint64_t parent, std::span<const token_id> tokens);
  static std::uint64_t content_hash(std::uint64_t parent, std::span<const token_id> tokens);

  /// `host_blocks`: slots of host memory for cached blocks that are evicted.
  block_manager(std::int32_t blocks, bool prefix_cache, std::int32_t host_blocks = 0, hash_fn hash = content_hash);

  /// Before anything is served.
  void keep_outside(kept_outside how) { kept_ = std::move(how); }

  void send_with(std::shared_ptr<const image_pool> images) { to_send_ = std::move(images); }
  /// Before anything is served: sequences have states, and cached prefixes end with a snapshot of them.
  void keep_snapshots(state_snapshots where) { snapshots_ = std::move(where); }

  block_grant serve(const block_request& request);

  /// Whoever is to get a request's blocks (block_destination) has those before place `first`, and takes the others:
  /// grants list them to be saved, as they are committed and there are images. Unknown requests are ignored.
  void accept(std::uint64_t request, std::int32_t first);

  /// The blocks of a chain that are cached, from its start.
  std::int32_t cached_blocks(const token_list& tokens, prefix_salt salt) const {
    return look_up({{}, tokens, salt}).blocks;
  }

  /// A chain of another replica has ended before it was whole.
  void count_incomplete() { ++counters_.incomplete; }

  block_counters counters() const;

  /// What each block holds, a character for each: 'f' nothing, 'c' cached content, 'd' cached content that is kept
  /// outside, too, '1' what one sequence refers to, '2' to '9' what so many share (or more).
  /// A character for each block. In a large pool, a character stands for several blocks, and shows the one in most use.
  std::string map() const;

private:
  friend struct block_audit; // tests/simulation

  using block_id = std::int32_t;
  static constexpr std::int32_t block_size = kernels::block_tokens;
  static constexpr block_id none = -1;

  struct block {
    std::int32_t references = 0;
    block_content content;               // id 0: not in the prefix index
    bool unsaved = false;                // its content is to be kept outside
    block_id older = none, newer = none; // eviction order while unreferenced
  };

  struct planned_snapshot {
    std::int32_t position = 0;
    std::int32_t slot = 0;
    bool rolling = false;
  };

  struct sequence {
    std::vector<block_id> table;
    std::int32_t length = 0;           // positions granted
    std::int32_t committed_blocks = 0; // full blocks in the index
    std::uint64_t content = 0;         // of the last committed block
    std::uint64_t hash = 0;
    std::uint64_t root = 0;     // of its chain
    std::vector<token_id> tail; // committed tokens of the block not yet full
    bool lasting = false;       // may be kept outside
    block_key key;              // then, of the last committed block

    // For recurrent layers:
    std::int32_t restored = none;        // slot of the state that its cached prefix ended with
    std::int32_t branch = 0;             // position up to which its prompt was known, beyond the cached prefix
    std::int32_t end = 0;                // of the full blocks that it was opened for
    std::int32_t saved = 0;              // position of its last snapshot
    std::vector<planned_snapshot> saves; // granted, at positions that are not committed
    std::uint64_t rolling = 0;           // content of the last snapshot that is given up for the next
  };

  /// Blocks of a sequence that another replica gets.
  struct shipment {
    block_destination_ptr to;
    std::int32_t next = none; // place of the next one; none: they are not accepted yet
  };

  /// The way along a chain of cached blocks.
  struct chain {
    std::uint64_t content = 0, hash = 0; // of its last block
  };

  /// Where a block of a chain is cached: in the pool, or else in host memory.
  struct place {
    block_id block = none;
    std::optional<host_block_pool::slot_id> slot = {};
    explicit operator bool() const { return block != none || slot; }
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
  void truncate(sequence& s, std::int32_t length);
  void shorten(sequence& s, std::int32_t length);
  std::vector<host_hit> open(sequence& s, const std::vector<token_id>& tokens, std::int32_t most, prefix_salt salt,
                             bool from_host);
  std::size_t reach(sequence& s, std::span<const token_id> tokens, std::size_t most, bool from_host) const;
  void grant_saves(sequence& s, block_answer& a, std::int32_t guesses);
  void attach_snapshot(sequence& s);
  void drop_saves(sequence& s, std::int32_t length);
  place follow(chain& at, std::span<const token_id> tokens) const;
  block_found look_up(const block_lookup& l) const;
  void arrive(const block_arrival& a, swap_decision swap, block_grant& grant);
  void save_some(block_grant& grant);
  bool save(block_id b, block_grant& grant);
  void send_some(block_grant& grant);
  void swap_in(sequence& s, const std::vector<host_hit>& hits, swap_decision swap, block_grant& grant);
  void put_into_index(block_id b, const block_content& content);
  block_id find(std::uint64_t parent_content, std::uint64_t hash, std::span<const token_id> tokens) const;
  // Evicts if no block is free; with a grant, the content may be swapped out or saved.
  block_id acquire(swap_decision swap, block_grant* grant);
  void reference(block_id b);
  void unreference(block_id b);
  void unlink(block_id b); // from the eviction order
  std::int32_t available() const { return std::int32_t(free_.size() + counters_.cached); }

  bool prefix_cache_;
  hash_fn hash_;
  host_block_pool host_pool_;
  std::vector<block> blocks_;
  std::vector<block_id> free_;
  block_id oldest_ = none, newest_ = none;
  std::uint64_t last_content_ = 0;
  std::unordered_multimap<std::uint64_t, block_id> index_;
  std::map<sequence_id, sequence> sequences_;
  std::map<sequence_id, shipment> shipments_;
  std::shared_ptr<const image_pool> to_send_; // null: nothing is sent
  std::optional<kept_outside> kept_;
  std::optional<state_snapshots> snapshots_;
  std::deque<std::pair<block_id, std::uint64_t>> to_save_; // with the id of their content, unless evicted
  block_counters counters_;
};

} // namespace troupe
