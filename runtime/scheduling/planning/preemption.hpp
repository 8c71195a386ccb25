// Who gives up slots or blocks, and to whom: victims, sequences that start anew beyond a border of rotation, deadlocks.
// Moves sequences in the table from their slots back to the queue; reads the draft, as those with rows in the step
// being planned keeps them. Owned by the scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/planning/row_rules.hpp"
#include "runtime/scheduling/planning/sequence_table.hpp"
#include "runtime/scheduling/planning/slot_shares.hpp"
#include "runtime/scheduling/planning/step_draft.hpp"

#include <cstdint>

namespace troupe {

class preemption {
public:
  preemption(const scheduler_limits& limits, sequence_table& table, const row_rules& rules, const slot_shares& shares,
             const step_draft& draft)
    : limits_(limits), table_(table), rules_(rules), shares_(shares), draft_(draft) {}

  // Blocks of those preempted go back with `request`, ahead of what it demands.

  /// Sequences that have grown beyond a border, to be computed again.
  void suspend_crossing(block_request& request);

  /// Paused or less important sequences give way to the first that waits, if it lacks slots or was refused blocks, or
  /// one of a client that has more than others.
  void make_room_for_waiting(block_request& request);

  /// The one that gives way next. Null if all have rows in this step.
  scheduled_sequence* victim(const scheduled_sequence* newcomer = nullptr);

  /// Preempts a sequence with its group. A group whose blocks can never be had fails: not one that has demanded none in
  /// this step, nor, with `fits`, one that is preempted for others.
  void preempt(scheduled_sequence& s, block_request& request, bool fits = false);

  /// Nothing can be planned, although nothing is in flight, or yet to be told to the block manager, that changes it.
  bool deadlocked() const;

  std::uint64_t preempted() const { return preempted_; }

private:
  void preempt_group(std::uint64_t request_id, block_request& request, bool fits);
  bool urgent(const scheduled_sequence& s) const;
  const scheduled_sequence* first_waiting(const slots_by_client& held) const;
  scheduled_sequence* fair_victim(const scheduled_sequence& first, const slots_by_client& held);
  bool has_rows(const scheduled_sequence& s) const;

  const scheduler_limits& limits_;
  sequence_table& table_;
  const row_rules& rules_;
  const slot_shares& shares_;
  const step_draft& draft_;
  std::uint64_t preempted_ = 0;
};

} // namespace troupe
