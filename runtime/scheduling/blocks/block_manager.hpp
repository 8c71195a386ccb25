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
#include "runtime/scheduling/blocks/content_exchange.hpp"
#include "runtime/scheduling/blocks/sequence_blocks.hpp"
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
  block_manager(const block_manager&) = delete; // its parts refer to each other
  block_manager& operator=(const block_manager&) = delete;

  /// Before anything is served.
  void keep_outside(kept_outside how) { pool_.kept = std::move(how); }

  /// `states`: with the blocks of a prompt, also the last snapshot; null: none.
  void send_with(std::shared_ptr<const image_pool> images, std::shared_ptr<const image_pool> states = {}) {
    exchange_.send_with(std::move(images), std::move(states));
  }
  /// Before anything is served: sequences have states, and cached prefixes end with a snapshot of them.
  void keep_snapshots(state_snapshots where) { pool_.snapshots = std::move(where); }

  block_grant serve(const block_request& request);

  /// Whoever is to get a request's blocks (block_destination) has those before place `first`, and takes the others:
  /// grants list them to be saved, as they are committed and there are images. Unknown requests are ignored.
  void accept(std::uint64_t request, std::int32_t first) { exchange_.accept(request, first); }

  /// What of a chain is cached, from its start.
  block_found look_up(const block_lookup& l) const { return exchange_.look_up(l); }

  /// A chain of another replica has ended before it was whole.
  void count_incomplete() { ++pool_.counters.incomplete; }

  block_counters counters() const;
  /// The same but for the positions that are filled (slots_used). Allocates nothing.
  block_counters totals() const;

  /// What each block holds, a character for each: 'f' nothing, 'c' cached content, 'd' cached content that is kept
  /// outside, too, '1' what one sequence refers to, '2' to '9' what so many share (or more).
  /// In the map of a large pool, a character stands for several blocks and shows the one in most use.
  std::string map() const { return pool_.map(); }

private:
  friend struct block_audit; // tests/simulation

  using block_id = block_pool::block_id;
  static constexpr std::int32_t block_size = kernels::block_tokens;
  static constexpr block_id none = block_pool::none;

  void commit(const block_commit& c);
  void fork(const block_fork& f);
  void release(sequence_id id);
  block_answer answer(const block_demand& d, swap_decision swap, block_grant& grant);

  bool has(sequence_id id, std::int32_t positions) const;
  void let_go(std::vector<host_hit>& hits);

  bool prefix_cache_;
  block_pool pool_;
  std::map<sequence_id, sequence_blocks> sequences_;
  content_exchange exchange_{pool_, prefix_cache_};
};

} // namespace troupe
