// Plans steps, in rounds of block requests and grants: when a step can be planned, then what it asks for (row_demands),
// what sequences get of what is granted (row_grants), and who gives way when something is refused (preemption). Counts
// the steps in flight. Where steps pass through several stages, sequences that decode belong to microbatches, which
// take turns: each is planned when its own last tokens are about to be known, whatever others wait for. Prompts may
// have rows in any step. Owned by the scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/cost/ahead_policy.hpp"
#include "runtime/scheduling/cost/microbatch_policy.hpp"
#include "runtime/scheduling/planning/preemption.hpp"
#include "runtime/scheduling/planning/row_demands.hpp"
#include "runtime/scheduling/planning/row_grants.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

namespace troupe {

class step_planner {
public:
  /// Another block request, the plan, or nothing if the step has no rows.
  using next = std::variant<std::monostate, block_request, std::shared_ptr<const step_plan>>;

  step_planner(const scheduler_limits& limits, sequence_table& table, step_guesses& guesses, const step_cost& cost,
               step_budget& budget);
  step_planner(const step_planner&) = delete; // parts refer to each other
  step_planner& operator=(const step_planner&) = delete;

  bool wants_step();
  block_request begin_step();
  next granted(const block_grant& grant);
  std::optional<guess_request> ask_guess_model();

  /// The oldest step in flight is over; its result is booked. As scheduler::finished.
  void finished(const step_result& result, double ms, double computed_ms);

  std::vector<block_move> take_moves() { return draft_.take_moves(); }
  std::vector<started_request> take_started() { return grants_.take_started(); }
  void count(scheduler_counters& into) const;

private:
  struct microbatch {
    std::uint64_t planned = 0; // the last step of it
    // Found at a version of the table:
    std::optional<std::uint64_t> stalled; // its last step had no rows, and nothing has changed since it began
    std::optional<std::pair<std::uint64_t, bool>> held_back;
  };

  bool can_plan();
  bool can_plan(microbatch& m);
  bool held_back(microbatch& m);
  bool others_have_rows() const;
  void take_turn(std::int32_t turn) { rules_.take_turn(turn, policy_.count()); }
  std::vector<std::int32_t> turns() const;
  void decide_microbatches();
  void balance_microbatches();
  std::ptrdiff_t most_in_flight() const;
  bool can_do_without_unpredictable() const;

  void handle_refusal(const block_demand& refused, block_request& next);
  void handle_group_refusal(std::uint64_t request, block_request& next);
  std::shared_ptr<const step_plan> finish_draft();

  const scheduler_limits& limits_;
  sequence_table& table_;
  step_guesses& guesses_;
  const step_cost& cost_;
  step_budget& budget_;

  row_rules rules_;
  slot_shares shares_;
  step_draft draft_;
  row_demands demands_;
  row_grants grants_;
  preemption preemption_;
  ahead_policy ahead_;
  microbatch_policy policy_;
  std::vector<microbatch> microbatches_; // as many as there ever were

  struct planned_step {
    bool ahead = false; // of another in flight
  };
  std::deque<planned_step> in_flight_;
  std::uint64_t last_step_ = 0;
  bool awaiting_grant_ = false;    // a block request is unanswered
  bool guess_model_asked_ = false; // since the last step was over
};

} // namespace troupe
