// How clients share the slots: what each holds, an equal share, and how many slots a request may have beside others.
// Only reads.
#pragma once

#include "runtime/scheduling/planning/sequence_table.hpp"
#include "runtime/scheduling/scheduler_limits.hpp"

namespace troupe {

class slot_shares {
public:
  slot_shares(const scheduler_limits& limits, const sequence_table& table) : limits_(limits), table_(table) {}

  /// With those that it keeps for sequences to be forked.
  std::int32_t held_by(const scheduled_sequence& s) const;

  /// The slots of all clients that run. Names live as long as their sequences.
  slots_by_client held() const;

  /// An equal share of the slots for each client that runs or waits.
  std::int32_t equal() const;

  /// How many slots its client may have before it gets one for `s`. Beside clients whose tokens take longer for them,
  /// that is an equal share, or as many as make an equal share of the `rows` at which a step is efficient.
  std::int32_t most_for(const scheduled_sequence& s, std::int32_t rows) const;

  /// How many of its siblings get a slot together with a sequence that has just got its own. `promised`: slots that are
  /// free but will go to others.
  std::int32_t for_siblings(const scheduled_sequence& s, std::int32_t promised) const;

private:
  sequence_id first_that_runs(const sequence_group& g) const;

  const scheduler_limits& limits_;
  const sequence_table& table_;
};

} // namespace troupe
