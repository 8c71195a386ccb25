// The step being assembled, over rounds of block requests and grants: what was demanded, what of it was granted, the
// rows so far, and what room is left. Keeps account and writes the plan; decides nothing, and changes no sequence.
// Owned by the scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/planning/scheduled_sequence.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/techniques/guesser.hpp"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class step_draft {
public:
  /// Step `number`, of at most so many rows.
  void begin(std::int32_t rows, std::uint64_t number);
  /// No step: only what the block manager is to be told.
  void begin_without();
  bool exists() const { return plan_.has_value(); }
  std::uint64_t number() const { return number_; }

  // -- what is demanded -----------------------------------------------------------------------------------------------

  /// `logits`: rows of it whose logits are wanted, beyond the last.
  void demand(block_demand d, std::int32_t logits);
  /// The last demands are for the last rows of a group: granted all or none.
  void mark_last_row(sequence_id id) { last_rows_.insert(id); }
  /// It gets no rows in this step.
  void leave_out(sequence_id id) { demanded_.insert(id); }
  /// After a sequence was preempted because there was nothing to plan, all is demanded anew.
  void forget_demands();
  /// The demands that are not answered.
  const std::vector<block_demand>& demands() const { return demands_; }
  std::vector<block_demand> take_demands() { return std::exchange(demands_, {}); }

  bool any_demanded() const { return !demanded_.empty(); }
  bool demanded(sequence_id id) const { return demanded_.contains(id); }
  bool is_last_row(sequence_id id) const { return last_rows_.contains(id); }

  // -- room -----------------------------------------------------------------------------------------------------------

  /// Rows that are neither granted nor demanded.
  std::int32_t rows_left() const;
  /// Rows of logits beyond one for each sequence that are left, for guesses and scores.
  std::int32_t extra_logits() const { return extra_logits_; }
  void take_extra_logits(std::int32_t rows) { extra_logits_ -= rows; }
  /// Free slots that demands of sequences that wait will take.
  std::int32_t slots_promised() const { return slots_promised_; }
  void promise_slots(sequence_id to, std::int32_t slots) { slots_promised_ += promises_[to] = slots; }
  bool has_promise(std::uint64_t request) const {
    const auto first = promises_.lower_bound({request, 0});
    return first != promises_.end() && first->first.request == request;
  }
  /// The sequence has got them, or was refused blocks.
  void redeem_slots(sequence_id of) {
    if (const auto promise = promises_.extract(of))
      slots_promised_ -= promise.mapped();
  }
  /// Sequences that wait were refused blocks. Remembered until the next step is begun.
  bool starved() const { return starved_; }
  void starve(bool starved) { starved_ = starved; }

  // -- what is granted ------------------------------------------------------------------------------------------------

  bool any_granted() const { return !granted_.empty(); }
  bool granted(sequence_id id) const { return granted_.contains(id); }
  void mark_granted(sequence_id id) { granted_.insert(id); }
  /// Rows of prompts, by client.
  using rows_by_client = std::map<std::string, std::int32_t, std::less<>>;
  const rows_by_client& prompt_rows() const { return prompt_rows_; }
  void count_prompt_rows(const std::string& client, std::int32_t rows) { prompt_rows_[client] += rows; }

  /// Moves are kept apart from the step, which may be dropped: the block manager counts them as done.
  void add_moves(const std::vector<block_move>& moves) { moves_.insert(moves_.end(), moves.begin(), moves.end()); }

  /// The rows granted to a sequence: its known tokens, then a placeholder or guesses.
  void add_rows(const scheduled_sequence& s, const block_answer& answer, const block_grant& grant,
                std::span<const token_id> guesses);
  /// Adds a tree of guesses, all of which were granted. Returns its lines.
  std::shared_ptr<const kernels::tree_lines> add_tree(const scheduled_sequence& s, const block_answer& answer,
                                                      const block_grant& grant, const guess_run& guesses);
  /// Marks in the rows just added, before `s` is told of them, which tokens of the prompt are scored, or whose hidden
  /// states are wanted. Returns up to where the sequence is scored then.
  std::int32_t add_scores(const scheduled_sequence& s, std::int32_t rows);
  std::int32_t add_hidden_rows(const scheduled_sequence& s, std::int32_t rows);
  /// The hidden states of the rows just added, for the guesser.
  void add_guesser_rows(const scheduled_sequence& s, std::int32_t rows);
  /// The logits of the last row added, and of so many guesses before it. Returns the place of the first.
  std::int32_t add_logits(const scheduled_sequence& s, std::int32_t guesses);
  /// The logits of the last row added, for a group.
  std::int32_t add_logits();
  void add_sample(sample_demand d) { plan_->samples.push_back(std::move(d)); }
  void add_group(group_demand d) { plan_->groups.push_back(std::move(d)); }

  /// The step as it is now. Nothing if it has no rows.
  std::optional<step_plan> take();
  /// Granted moves, for the step that was taken.
  std::vector<block_move> take_moves() { return std::exchange(moves_, {}); }

private:
  std::optional<step_plan> plan_;
  std::set<sequence_id> demanded_, granted_, last_rows_;
  std::vector<block_demand> demands_;
  rows_by_client prompt_rows_;
  std::vector<block_move> moves_; // not yet part of a plan
  std::int32_t rows_ = 0;         // not granted
  std::uint64_t number_ = 0;
  std::int32_t extra_logits_ = 0;
  std::map<sequence_id, std::int32_t> promises_;
  std::int32_t slots_promised_ = 0; // in all
  bool starved_ = false;
};

} // namespace troupe
