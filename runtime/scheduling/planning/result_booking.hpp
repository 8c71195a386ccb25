// What became of a step's sequences: appends their tokens, takes back what was computed for wrong guesses, lets groups
// go on as they were judged, and ends who has ended. Writes the table. Owned by the scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/planning/sequence_table.hpp"
#include "runtime/scheduling/planning/step_guesses.hpp"

namespace troupe {

class result_booking {
public:
  result_booking(sequence_table& table, step_guesses& guesses) : table_(table), guesses_(guesses) {}

  /// The tokens of a result, what became of guesses and groups, and who failed.
  void book(const step_result& result);

  /// The sample of a sequence, or of its group, will be late.
  void defer(sequence_id id);

  void count(scheduler_counters& into) const;

private:
  void book(const sequence_sample& sampled, bool had_guesses);
  void book(const group_outcome& outcome);
  sequence_id begin_anew(const scheduled_sequence& parent, sequence_group& g, const group_child& child);

  sequence_table& table_;
  step_guesses& guesses_;
  std::uint64_t generated_ = 0, accepted_ = 0; // tokens
  std::uint64_t discarded_ = 0;                // rows
};

} // namespace troupe
