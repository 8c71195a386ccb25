// What became of a step's sequences: appends their tokens, takes back what was computed for wrong guesses, lets groups
// go on as they were judged, and ends who has ended. Writes the table. Owned by the scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/cost/load_report.hpp"
#include "runtime/scheduling/lengths/length_model.hpp"
#include "runtime/scheduling/planning/sequence_table.hpp"
#include "runtime/scheduling/planning/step_guesses.hpp"

#include <utility>
#include <vector>

namespace troupe {

class result_booking {
public:
  result_booking(sequence_table& table, step_guesses& guesses, length_model& lengths)
    : table_(table), guesses_(guesses), lengths_(lengths) {}

  /// The tokens of a result, what became of guesses and groups, and who failed.
  void book(const step_result& result);

  /// The sample of a sequence, or of its group, will be late.
  void defer(sequence_id id);

  /// Ends a sequence that is not judged with others: its text has a stop string.
  void stopped(sequence_id id);

  /// Answers that have ended since the last call, without those that were cancelled; at most load_report::most_ended.
  std::vector<ended_answer> take_ended() { return std::exchange(ended_, {}); }

  void count(scheduler_counters& into) const;

private:
  void keep_line(scheduled_sequence& s, const judged_guesses& outcome);
  void book(const sequence_sample& sampled, bool had_guesses);
  void book(const group_outcome& outcome);
  void learn(const scheduled_sequence& s, bool cut);
  sequence_id begin_anew(const scheduled_sequence& parent, sequence_group& g, const group_child& child);

  sequence_table& table_;
  step_guesses& guesses_;
  length_model& lengths_;
  std::vector<ended_answer> ended_;
  std::uint64_t generated_ = 0, accepted_ = 0; // tokens
  std::uint64_t discarded_ = 0;                // rows
};

} // namespace troupe
