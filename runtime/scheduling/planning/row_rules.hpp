// Which rows a sequence can have in the next step, from what is known of it, of what is in flight, and of whose turn it
// is. Only reads sequences.
#pragma once

#include "runtime/scheduling/planning/sequence_table.hpp"
#include "runtime/scheduling/scheduler_limits.hpp"

namespace troupe {

class row_rules {
public:
  row_rules(const scheduler_limits& limits, const sequence_table& table) : limits_(limits), table_(table) {}

  /// The step is one of microbatch `turn` of `count`: sequences that decode in others have no rows in it.
  void take_turn(std::int32_t turn, std::int32_t count) {
    turn_ = turn;
    microbatches_ = count;
  }
  std::int32_t turn() const { return turn_; }
  bool in_turn(const scheduled_sequence& s) const {
    return !s.running() || !s.decodes() || s.microbatch % microbatches_ == turn_;
  }

  /// How many rows the sequence would have if there was room for all.
  std::int32_t wanted(const scheduled_sequence& s) const { return in_turn(s) ? wanted_in_turn(s) : 0; }
  /// The rows that it would want if its microbatch had the turn.
  std::int32_t wanted_in_turn(const scheduled_sequence& s) const;

  /// One that waits may start.
  bool admissible(const scheduled_sequence& s) const;

  /// All members of a group lack nothing but their last rows.
  bool ready(const sequence_group& g) const;

  /// A sequence has no rows until a step in flight is over, because its next positions depend on the outcome: on what
  /// is accepted of guesses, on a constraint, which may force several tokens, or on the others of its group. Not one whose
  /// sample is late.
  bool unpredictable(const scheduled_sequence& s) const;

  /// Positions for which rows can be planned ahead of what is known end here.
  std::int32_t end_of_rows(const scheduled_sequence& s) const;

  /// Sequences have states.
  bool recurrent() const { return limits_.recurrent; }

  /// The number of borders of rotation that a sequence of so many tokens is beyond.
  std::int32_t rotation_of(std::int32_t length) const;

  /// It has grown beyond a border, and must be computed again.
  bool crosses(const scheduled_sequence& s) const { return s.running() && rotation_of(s.known()) != s.rotation; }

private:
  const scheduler_limits& limits_;
  const sequence_table& table_;
  std::int32_t turn_ = 0, microbatches_ = 1;
};

} // namespace troupe
