// What changes in the table of sequences mean for others, kept until they ask: commits, forks and releases for the
// block manager, copies for the executor, sequences that have ended for the sampler, requests that have failed for their
// clients. Owned by sequence_table; single-threaded.
#pragma once

#include "runtime/scheduling/planning/scheduled_sequence.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/support/error.hpp"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

class sequence_notices {
public:
  /// `recurrent`: slots have states, which forks copy.
  explicit sequence_notices(bool recurrent) : recurrent_(recurrent) {}

  // -- for the block manager ------------------------------------------------------------------------------------------

  /// Tells the block manager of the sequence's tokens that are known and computed.
  static void commit(scheduled_sequence& s, block_request& request);
  void commit(scheduled_sequence& s) { commit(s, later_); }
  /// Another sequence starts with all blocks and the state of `from`; both have slots. `after_step`: the state behind
  /// the step that is planned now.
  void fork(const scheduled_sequence& from, const scheduled_sequence& to, bool after_step);
  /// The other starts with the blocks of its first `length` positions. Not of recurrent models.
  void fork(sequence_id from, sequence_id to, std::int32_t length) { later_.forks.push_back({from, to, length}); }
  void release(sequence_id id) { later_.releases.push_back(id); }
  /// A sequence that runs gives back its blocks with the request `now`; null: with the next one.
  void leave(scheduled_sequence& s, block_request* now);
  /// For the next block request: forks, and commits and releases of sequences that have ended.
  const block_request& later() const { return later_; }
  /// Members of its group were forked since the last one: the block manager does not know yet that they have blocks.
  bool forks_later(std::uint64_t request) const;
  block_request take_later() { return std::exchange(later_, {}); }

  // -- for the executor -----------------------------------------------------------------------------------------------

  /// Siblings that were forked from the last step's rows can get their states.
  void begin_step();
  /// A tree's line was right: its blocks are copied to the sequence's own before any are used for something else.
  void keep(std::span<const kernels::block_copy> line);
  /// States of sequences that were forked, and lines that are kept: copies of what is computed before the step that is
  /// planned now.
  std::vector<block_move> take_copies() { return std::exchange(copies_, {}); }

  // -- for sampler and clients ----------------------------------------------------------------------------------------

  void ended(sequence_id id) { ended_.push_back(id); }
  /// Sequences of which the sampler has a state that it can drop.
  std::vector<sequence_id> take_ended() { return std::exchange(ended_, {}); }
  void failed(std::uint64_t request, error why) { failed_.emplace_back(request, std::move(why)); }
  std::vector<std::pair<std::uint64_t, error>> take_failed() { return std::exchange(failed_, {}); }

private:
  const bool recurrent_;
  block_request later_;
  std::vector<block_move> copies_, later_copies_;
  std::vector<sequence_id> ended_;
  std::vector<std::pair<std::uint64_t, error>> failed_;
};

} // namespace troupe
