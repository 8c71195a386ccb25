// Makes the records of steps while someone watches: gathers what the block manager grants, what is planned and what
// comes of it. Owned by the scheduler actor; single-threaded.
#pragma once

#include "runtime/scheduling/scheduler_counters.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/scheduling/step_record.hpp"

#include <deque>
#include <optional>
#include <span>

namespace troupe {

class step_recorder {
public:
  /// `now`: what the scheduler has counted so far.
  explicit step_recorder(const scheduler_counters& now) : before_(now) {}

  /// A grant for the step that is being planned.
  void granted(const block_grant& grant);

  /// The plan is made; `now`: what the scheduler has counted with it; `all`: what each of its sequences would do
  /// without rows in this step.
  void planned(const step_plan& plan, const scheduler_counters& now, std::span<const step_lane> all = {});

  /// What became of guesses in steps that have deferred them: of the next record.
  void finished_late(const step_result& result) { judge(result, late_); }

  /// The record of a step, without times and a remark; nothing if it was planned before the watch.
  std::optional<step_record> finished(const step_result& result, const scheduler_counters& now);

private:
  step_lane* lane_of(sequence_id sequence);
  void add_lane(const block_answer& answer);
  static void judge(const step_result& result, step_rows& rows);

  scheduler_counters before_; // at the last plan
  step_record planning_;
  step_rows late_;
  std::deque<step_record> in_flight_;
};

} // namespace troupe
