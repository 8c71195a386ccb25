// Who has which block of the paged KV cache: free list, reference counts, block tables, prefix index, eviction order.
// Accounting only: it never sees K/V data. Owned by the kv_block_manager actor; single-threaded.
//
// Safe because steps run in the order in which they are planned: a block that is released while a planned step still
// uses it can only be handed to a later step.
#pragma once

#include "runtime/step.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace troupe {

struct block_counters {
  std::uint64_t total = 0;      // blocks of the pool
  std::uint64_t in_use = 0;     // referenced by a sequence
  std::uint64_t cached = 0;     // unreferenced, kept for their content
  std::uint64_t looked_up_tokens = 0, found_tokens = 0, copied = 0, evicted = 0;
};

class block_manager {
public:
  /// Of the content of one block, given its predecessor's. Replaceable so that tests can make it collide.
  using hash_fn = std::uint64_t (*)(std::uint64_t parent, std::span<const token_id> tokens);
  static std::uint64_t content_hash(std::uint64_t parent, std::span<const token_id> tokens);

  block_manager(std::int32_t blocks, bool prefix_cache, hash_fn hash = content_hash);

  block_grant serve(const block_request& request);

  const block_counters& counters() const { return counters_; }

private:
  using block_id = std::int32_t;
  static constexpr block_id none = -1;

  /// A block's content is identified by a number that is never reused, so that a chain of blocks is matched exactly:
  /// predecessor by identity, own tokens one by one. The hash only finds candidates.
  struct block {
    std::int32_t references = 0;
    std::uint64_t content = 0;          // 0: not in the prefix index
    std::uint64_t parent_content = 0;
    std::uint64_t hash = 0;
    std::array<token_id, kernels::block_tokens> tokens{};
    block_id older = none, newer = none; // eviction order while unreferenced
  };

  struct sequence {
    std::vector<block_id> table;
    std::int32_t length = 0;             // positions granted
    std::int32_t committed_blocks = 0;   // full blocks in the index
    std::uint64_t content = 0;           // of the last of them
    std::uint64_t hash = 0;
    std::vector<token_id> tail;          // committed tokens of the block not yet full
  };

  void commit(const block_commit& c);
  void fork(const block_fork& f);
  void release(sequence_id id);
  block_answer answer(const block_demand& d, block_grant& grant);

  void index_full_block(sequence& s);
  void open(sequence& s, const std::vector<token_id>& tokens);
  block_id find(std::uint64_t parent_content, std::uint64_t hash, std::span<const token_id> tokens) const;
  block_id take();                       // a free block, evicting if need be; none if there is none
  void reference(block_id b);
  void unreference(block_id b);
  void unlink(block_id b);               // from the eviction order
  std::int32_t available() const { return std::int32_t(free_.size() + counters_.cached); }

  bool prefix_cache_;
  hash_fn hash_;
  std::vector<block> blocks_;
  std::vector<block_id> free_;
  block_id oldest_ = none, newest_ = none;
  std::uint64_t last_content_ = 0;
  std::unordered_multimap<std::uint64_t, block_id> index_;
  std::map<sequence_id, sequence> sequences_;
  block_counters counters_;
};

} // namespace troupe
