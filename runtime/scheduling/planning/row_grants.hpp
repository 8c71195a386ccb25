// What sequences get of what the block manager has granted: those that waited are admitted, rows go into the draft with
// what is wanted of them (samples, scores, hidden states), siblings are forked. Writes how far a sequence is. Owned by
// the scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/cost/step_budget.hpp"
#include "runtime/scheduling/planning/row_rules.hpp"
#include "runtime/scheduling/planning/sequence_table.hpp"
#include "runtime/scheduling/planning/slot_shares.hpp"
#include "runtime/scheduling/planning/step_draft.hpp"
#include "runtime/scheduling/planning/step_guesses.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace troupe {

/// A request whose first rows were planned, with the prompt tokens found in the prefix cache.
struct started_request {
  std::uint64_t request = 0;
  std::int32_t cached_tokens = 0;
};

class row_grants {
public:
  row_grants(sequence_table& table, const row_rules& rules, const slot_shares& shares, const step_guesses& guesses,
             step_budget& budget, step_draft& draft)
    : table_(table), rules_(rules), shares_(shares), guesses_(guesses), budget_(budget), draft_(draft) {}

  void apply(const block_demand& asked, const block_answer& answer, const block_grant& grant);

  /// A group gets its last rows or none: rows granted to some of it are taken back by their next demand. Returns the
  /// requests whose groups got none.
  std::vector<std::uint64_t> apply_groups(const std::vector<block_demand>& asked, const block_grant& grant);

  std::vector<started_request> take_started() { return std::exchange(started_, {}); }
  void count(scheduler_counters& into) const;

private:
  void admit(scheduled_sequence& s, const block_answer& answer);
  void add_rows(scheduled_sequence& s, const block_demand& asked, const block_answer& answer, const block_grant& grant);
  void add_samples(scheduled_sequence& s, std::int32_t guesses);
  void add_sample(scheduled_sequence& s, std::int32_t logit_row, std::int32_t guesses);
  void add_siblings(scheduled_sequence& s, std::int32_t logit_row);
  void add_group(sequence_group& g, std::uint64_t request, std::vector<std::int32_t> logit_rows);

  sequence_table& table_;
  const row_rules& rules_;
  const slot_shares& shares_;
  const step_guesses& guesses_;
  step_budget& budget_;
  step_draft& draft_;

  std::vector<started_request> started_;
  std::uint64_t prefill_rows_ = 0, decode_rows_ = 0, prompt_tokens_ = 0;
  std::uint64_t guess_runs_ = 0, guess_trees_ = 0, guess_runs_ahead_ = 0, guessed_tokens_ = 0;
};

} // namespace troupe
