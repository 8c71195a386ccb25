// Guesses of the sequences that run, as far as the scheduler is concerned: tells the guesser who runs, what was chosen
// and what steps took, asks it whether to wait for guesses and which, and keeps them for the step being planned. Knows
// nothing of where guesses come from; does nothing without a guesser. Owned by the scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"
#include "runtime/scheduling/planning/row_rules.hpp"
#include "runtime/scheduling/scheduler_limits.hpp"
#include "runtime/techniques/guesser.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

class step_guesses {
public:
  /// `source`: null for no guesses at all.
  step_guesses(std::shared_ptr<guesser> source, const scheduler_limits& limits, const step_cost& cost)
    : guesser_(std::move(source)), limits_(limits), cost_(cost) {}

  /// A sequence runs from now on, and runs no longer.
  void begin(const scheduled_sequence& s);
  void end(const scheduled_sequence& s);

  // -- before a step --------------------------------------------------------------------------------------------------

  /// Whether to plan the next step only when all tokens of those in flight are known, or the guess_model has replied.
  bool wait(const sequence_table& table, const row_rules& rules);

  /// What to ask the guess_model before the next step is planned; nothing while any of its sequences is in flight.
  std::optional<guess_request> ask_guess_model(const sequence_table& table, const row_rules& rules);

  /// What to ask it while the step that was planned last is computed.
  std::optional<guess_request> ask_ahead() { return guesser_ ? guesser_->collect_ahead() : std::nullopt; }

  // -- planning a step ------------------------------------------------------------------------------------------------

  /// Fetches guesses for the sequences that have nothing but their last known token to compute: at most `most`, in a
  /// step of so many rows. Returns how many.
  std::int32_t propose(const sequence_table& table, const row_rules& rules, std::int32_t most, std::int32_t rows);
  void clear() { guesses_.clear(); }

  /// The guesses of a sequence in the step being planned; mostly none.
  const guess_run& of(sequence_id id) const;

  /// Whether the guesser wants the hidden states of a sequence's rows.
  bool want_states(const scheduled_sequence& s) const { return guesser_ && guesser_->wants_states(s.id); }

  void planned(const step_plan& plan);

  // -- after a step ---------------------------------------------------------------------------------------------------

  void judged(const scheduled_sequence& s, std::span<const token_id> choices);
  void append(const scheduled_sequence& s, token_id token);
  void take_states(const step_result& result);
  /// Like scheduler::finished.
  void finished(double ms, double computed_ms);

  /// What a step of so many rows costs that all want logits, at the context of the sequences that last decoded.
  step_estimate estimate(int rows) const;

private:
  /// The sequences that decode in the next step, as far as they can have guesses.
  struct decoding_step {
    plain_step step;
    std::vector<decoding_sequence> sequences;
    bool in_flight = false; // tokens of some are not known
  };
  decoding_step decoding(const sequence_table& table, const row_rules& rules);

  struct planned_step {
    plain_step plain;
    step_shape without, with; // guesses
  };

  std::shared_ptr<guesser> guesser_;
  const scheduler_limits& limits_;
  const step_cost& cost_;
  std::map<sequence_id, guess_run> guesses_;
  std::deque<planned_step> in_flight_;
  double context_ = 0; // positions of the sequences that decode
  int decoding_ = 0;   // these sequences
};

} // namespace troupe
