// Guesses that a draft model makes while the model still verifies others: what it took for granted, what it guessed
// behind that, and what came. And whether that pays. Owned by the speculator; single-threaded.
#pragma once

#include "runtime/support/types.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// The guesses ahead of one sequence and one step.
class ahead_guesses {
public:
  /// `line`: the guesses of the step, which were taken for granted.
  explicit ahead_guesses(std::vector<token_id> line) : line_(std::move(line)), taken_(line_.size()) {}

  /// Guesses of the tokens behind the line. The first is of the one that the step chooses behind its guesses.
  void answered(std::span<const token_id> guesses);

  /// Tokens of the sequence.
  void came(std::span<const token_id> tokens) { came_.insert(came_.end(), tokens.begin(), tokens.end()); }

  bool is_answered() const { return answered_; }
  bool has_come() const { return !came_.empty(); }

  /// Whether there may be guesses of what follows: all that came is as it was guessed, so far as that is known.
  bool is_open() const;

  /// Guesses of the tokens that follow those that came, once all is known; empty: what came was not guessed.
  std::vector<token_id> rest() const;

  /// Guesses of the step.
  std::size_t taken() const { return taken_; }

private:
  std::vector<token_id> line_, came_;
  std::size_t taken_;
  bool answered_ = false;
};

/// What guessing ahead has saved and cost: the milliseconds of the draft model's passes for which the next step would
/// have been held back, against those by which a step takes longer beside it, as both read weights from one memory. It
/// is tried at first, and now and then where it does not pay; and now and then a step has nothing beside it, to be
/// compared with.
class ahead_account {
public:
  /// Whether to guess ahead beside the step that is about to be computed. Call it once a step.
  bool tries();

  /// A step is over: what it took, and what such steps are expected to take, whatever is beside them.
  void finished(double ms, double expected_ms, bool beside);

  /// What came of guesses ahead. 0 or less: they were thrown away.
  void saved(double ms);

  bool pays() const;

private:
  struct mean {
    double value = 0, weight = 0;
    void add(double sample);
  };

  mean saved_, beside_, alone_; // ms a step; the last two of what a step took over what was expected, in its parts
  double step_ms_ = 0;          // expected, of the last step
  int steps_ = 0;
};

} // namespace troupe
