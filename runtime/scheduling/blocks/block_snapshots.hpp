// Where a sequence gets snapshots of recurrent layers' states. A cached prefix is of use as far as its last snapshot.
// Snapshots are made at the end of what a sequence was opened for, and a block before, because the next turn may begin
// the answer otherwise (without its reasoning); where its prompt leaves what is cached, because conversations branch
// there; at fixed distances; and behind that one that moves on with the answer, so that the next turn finds all of it but
// a block. Part of a block_manager's sequence; single-threaded.
#pragma once

#include "runtime/scheduling/blocks/block_pool.hpp"
#include "runtime/scheduling/blocks/state_snapshots.hpp"
#include "runtime/scheduling/step.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class sequence_snapshots {
public:
  /// How many blocks of a chain, at most `most`, can be shared: as far as the last snapshot.
  std::size_t reach(const block_pool& pool, block_pool::chain at, std::span<const token_id> tokens, std::size_t most,
                    bool from_host);

  /// The slot of the state that the cached prefix ended with, which counts as used.
  std::int32_t use(state_snapshots& slots) const;

  /// Adds the snapshots that a granted piece of the sequence makes to its answer, as far as there are slots.
  void grant(state_snapshots& slots, block_answer& a, std::int32_t guesses);

  /// The block that ends at `position` was committed. Whether it has a new snapshot now that stays.
  bool attach(state_snapshots& slots, std::uint64_t content, std::int32_t position);

  /// The place of the block whose snapshot moves on with the answer, and its content; 0: none.
  struct moving_one {
    std::uint64_t content = 0;
    std::int32_t place = 0;
  };
  moving_one rolling() const { return rolling_; }

  /// Gives back those behind a position that will not be computed as it was planned.
  void drop(state_snapshots& slots, std::int32_t length);

  /// A copy of a sequence makes none of what the other was granted.
  void fork();

private:
  friend struct block_audit; // tests/simulation

  struct planned {
    std::int32_t position = 0;
    std::int32_t slot = 0;
    bool rolling = false;
  };

  std::int32_t restored_ = -1;   // slot of the state that its cached prefix ended with
  std::int32_t branch_ = 0;      // position up to which its prompt was known, beyond the cached prefix
  std::int32_t end_ = 0;         // of the full blocks that it was opened for
  std::int32_t saved_ = 0;       // position of its last snapshot
  std::vector<planned> planned_; // granted, at positions that are not committed
  moving_one rolling_;           // the last snapshot that is given up for the next
};

} // namespace troupe
