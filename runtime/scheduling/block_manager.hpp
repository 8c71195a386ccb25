// Accounts for the blocks of the paged KV cache: free list, reference counts, block tables, prefix index, eviction
// order, and the evicted blocks kept in host memory. Never sees K/V data. Owned by the kv_block_manager actor;
// single-threaded.
//
// Safe because steps run in the order in which they are planned: a block released while a planned step still uses it
// can only be granted to a later step, and moves run in the order of the grants.
#pragma once

#include "runtime/scheduling/block_counters.hpp"
#include "runtime/scheduling/host_block_pool.hpp"
#include "runtime/scheduling/step.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace troupe {

class block_manager {
public:
  /// Hashes the tokens of one block, given its predecessor's hash. Tests replace it to force collisions.
  using hash_fn = std::uint64_t (*)(std::uint64_t parent, std::span<const token_id> tokens);
  static std::uint64_t content_hash(std::uint64_t parent, std::span<const token_id> tokens);

  /// `host_blocks`: slots of host memory for cached blocks that are evicted.
  block_manager(std::int32_t blocks, bool prefix_cache, std::int32_t host_blocks = 0, hash_fn hash = content_hash);

  block_grant serve(const block_request& request);

  block_counters counters() const;

private:
  using block_id = std::int32_t;
  static constexpr block_id none = -1;

  struct block {
    std::int32_t references = 0;
    block_content content;               // id 0: not in the prefix index
    block_id older = none, newer = none; // eviction order while unreferenced
  };

  struct sequence {
    std::vector<block_id> table;
    std::int32_t length = 0;           // positions granted
    std::int32_t committed_blocks = 0; // full blocks in the index
    std::uint64_t content = 0;         // of the last committed block
    std::uint64_t hash = 0;
    std::vector<token_id> tail; // committed tokens of the block not yet full
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
  std::vector<host_hit> open(sequence& s, const std::vector<token_id>& tokens, std::int32_t most, prefix_salt salt,
                             bool from_host);
  void swap_in(sequence& s, const std::vector<host_hit>& hits, swap_decision swap, block_grant& grant);
  void put_into_index(block_id b, const block_content& content);
  block_id find(std::uint64_t parent_content, std::uint64_t hash, std::span<const token_id> tokens) const;
  block_id acquire(swap_decision swap, block_grant& grant); // evicts, and swaps out, if no block is free
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
  block_counters counters_;
};

} // namespace troupe
