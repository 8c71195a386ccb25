// What others want to know of all sequences: why each waits, what they need, how long they will take. Reads the table
// and changes nothing. Owned by the scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/cost/load_report.hpp"
#include "runtime/scheduling/planning/sequence_table.hpp"
#include "runtime/scheduling/scheduler_counters.hpp"
#include "runtime/scheduling/step_record.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

class sequence_survey {
public:
  explicit sequence_survey(const sequence_table& table) : table_(table) {}

  void count(scheduler_counters& into) const;
  /// Why each sequence has nothing to do; at most `most` of them, those first that run.
  std::vector<step_lane> idle_lanes(std::size_t most) const;
  /// Why each of those that run has nothing to do.
  std::vector<step_lane> running_lanes() const;
  /// Where the furthest sequence of a request stands; nothing: it has none, or waits for its end.
  std::optional<wait_cause> standing_of(std::uint64_t request) const;
  void add_load(load_report& to) const;
  /// What is left of those that run, as far as it is expected.
  void add_lengths(load_report& to) const;

private:
  wait_cause standing(const scheduled_sequence& s) const;

  const sequence_table& table_;
};

} // namespace troupe
