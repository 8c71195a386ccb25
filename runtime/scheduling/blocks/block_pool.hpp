// The blocks of the paged KV cache: free list, reference counts, the index of their content, the order of eviction, and
// where evicted content goes: to host memory, or to images that are kept outside. Never sees K/V data. Part of a
// block_manager; single-threaded.
#pragma once

#include "runtime/scheduling/blocks/block_counters.hpp"
#include "runtime/scheduling/blocks/host_block_pool.hpp"
#include "runtime/scheduling/blocks/state_snapshots.hpp"
#include "runtime/scheduling/step.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
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
  std::shared_ptr<const image_pool> images;      // to save to
  std::int32_t most_saves = 16;                  // in a grant, beside those of evicted blocks
  std::shared_ptr<const image_pool> states = {}; // to save snapshots of states to; null: there are none
};

class block_pool {
public:
  using block_id = std::int32_t;
  static constexpr block_id none = -1;

  /// Hashes the tokens of one block, given its predecessor's hash. Tests replace it to force collisions.
  using hash_fn = std::uint64_t (*)(std::uint64_t parent, std::span<const token_id> tokens);
  static std::uint64_t content_hash(std::uint64_t parent, std::span<const token_id> tokens);

  /// `host_blocks`: slots of host memory for cached blocks that are evicted.
  block_pool(std::int32_t blocks, std::int32_t host_blocks, hash_fn hash);

  // -- content ----------------------------------------------------------------------------------------------------

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

  /// Goes on to the next block of a chain, if it is cached.
  place follow(chain& at, std::span<const token_id> tokens) const;

  std::uint64_t hash(std::uint64_t parent, std::span<const token_id> tokens) const { return hash_(parent, tokens); }
  block_id find(std::uint64_t parent_content, std::uint64_t hash, std::span<const token_id> tokens) const;
  const block_content& content(block_id b) const { return blocks_[static_cast<std::size_t>(b)].content; }

  /// The block has this content from now on; returns its id. `keep`: it is to be kept outside.
  std::uint64_t put(block_id b, block_content content, bool keep = false);

  // -- use --------------------------------------------------------------------------------------------------------

  /// A block with one reference. Evicts if none is free; with a grant, the content may be swapped out or saved.
  block_id acquire(swap_decision swap, block_grant* grant);
  void reference(block_id b);
  void unreference(block_id b);

  /// Whether writing to the block would change what others read, or cached content.
  bool is_shared(block_id b) const;

  std::int32_t available() const { return static_cast<std::int32_t>(free_.size() + counters.cached); }
  std::int32_t free() const { return static_cast<std::int32_t>(free_.size()); }

  /// The content of a slot of host memory, in a block. It stays there, too, so that a block evicted again need not be
  /// swapped out again. The slot is held meanwhile.
  block_id restore(host_block_pool::slot_id slot, swap_decision swap, block_grant& grant);
  void hold(host_block_pool::slot_id slot) { host_.hold(slot); }
  void let_go(host_block_pool::slot_id slot) { host_.release(slot); }

  // -- what is kept outside ---------------------------------------------------------------------------------------

  /// Saves what was committed first, as far as there are images, and a snapshot.
  void save_some(block_grant& grant);

  /// The snapshot behind this content is to be kept outside, unless it is given up before.
  void keep_state(const block_content& behind);

  /// See block_manager::map.
  std::string map() const;
  void count(block_counters& into) const;

  std::optional<kept_outside> kept;         // set before anything is served
  std::optional<state_snapshots> snapshots; // of contents; likewise
  block_counters counters;                  // also what the manager counts

private:
  friend struct block_audit; // tests/simulation

  struct block {
    std::int32_t references = 0;
    block_content content;               // id 0: not in the prefix index
    bool unsaved = false;                // its content is to be kept outside
    block_id older = none, newer = none; // eviction order while unreferenced
  };

  bool save(block_id b, block_grant& grant);
  void save_state(block_grant& grant);
  void evict(block_id b, swap_decision swap, block_grant* grant);
  void unlink(block_id b); // from the eviction order

  hash_fn hash_;
  host_block_pool host_;
  std::vector<block> blocks_;
  std::vector<block_id> free_;
  block_id oldest_ = none, newest_ = none;
  std::uint64_t last_content_ = 0;
  std::unordered_multimap<std::uint64_t, block_id> index_;
  std::deque<std::pair<block_id, std::uint64_t>> to_save_; // with the id of their content, unless evicted
  std::deque<block_content> states_to_save_;               // behind these, unless given up
};

} // namespace troupe
