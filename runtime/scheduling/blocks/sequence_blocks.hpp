// The blocks of one sequence: its block table, how much of it is granted and how much is in the prefix index. What it
// refers to, the pool counts; whoever has one releases it. Part of a block_manager; single-threaded.
#pragma once

#include "runtime/scheduling/blocks/block_pool.hpp"
#include "runtime/scheduling/blocks/block_snapshots.hpp"
#include "runtime/scheduling/step.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// A block in host memory that a sequence being opened shares.
struct host_hit {
  std::size_t place; // in the block table
  host_block_pool::slot_id slot;
};

struct sequence_blocks {
  std::vector<block_pool::block_id> table;
  std::int32_t length = 0;           // positions granted
  std::int32_t committed_blocks = 0; // full blocks in the index
  std::uint64_t content = 0;         // of the last committed block
  std::uint64_t hash = 0;
  std::uint64_t root = 0;     // of its chain
  std::vector<token_id> tail; // committed tokens of the block not yet full
  block_key key;              // of the last committed block, if content is kept outside
  sequence_snapshots snapshots;

  /// Before it has blocks. `salt`: of its chain.
  void begin(const block_pool& pool, prefix_salt salt);
  /// Shares what is cached of the tokens' first `most`. Blocks found in host memory get a place in the table but no
  /// block yet: the demand may still be refused.
  std::vector<host_hit> open(block_pool& pool, std::span<const token_id> tokens, std::int32_t most, bool from_host);
  /// Tokens that are known and computed: full blocks enter the index.
  void commit(block_pool& pool, std::span<const token_id> tokens);
  /// Ends at position `to`, also where blocks behind it are in the index.
  void shorten(block_pool& pool, std::int32_t to);
  /// Takes back what was granted for positions from `to` on, and spare blocks.
  void truncate(block_pool& pool, std::int32_t to);
  /// A copy of another sequence's refers to the same blocks.
  void share(block_pool& pool);
  void release(block_pool& pool);

private:
  void index_full_block(block_pool& pool);
  void drop_snapshots(block_pool& pool, std::int32_t from);
};

} // namespace troupe
