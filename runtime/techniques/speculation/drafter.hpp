// Guesses how one sequence goes on. Guesses are judged by the model's own choices (equality), so they decide only how
// fast a sequence is generated, never what. State is derivable from the transcript.
#pragma once

#include "runtime/support/types.hpp"
#include "runtime/techniques/speculation/guess_offer.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

class drafter {
public:
  /// Grades of guesses: some drafters know that one is better than another.
  static constexpr std::size_t grades = 16;

  virtual ~drafter() = default;

  /// Tokens that the sequence has gained, in order; first its prompt.
  virtual void append(std::span<const token_id> tokens) = 0;

  /// At most `most` guesses of the tokens that follow, appended to `guesses`; fewer, or none, if there is no good
  /// guess.
  virtual void propose(std::size_t most, std::vector<token_id>& guesses) = 0;

  /// Whether `offer` is called in place of `propose` and `grade`: it knows what each guess is worth.
  virtual bool offers() const { return false; }

  /// At most `room` guesses that may branch, at most `most` behind each other, likeliest first.
  virtual void offer(std::size_t most, std::size_t room, std::vector<offered_guess>& guesses) {
    static_cast<void>(most), static_cast<void>(room), static_cast<void>(guesses);
  }

  /// Whether `propose_tree` is called in place of `propose`, and `observe_tree` in place of `observe`: the shape is its
  /// own.
  virtual bool branches() const { return false; }

  /// At most `room` guesses, at most `most` behind each other, as in guess_run.
  virtual void propose_tree(std::size_t most, std::size_t room, std::vector<token_id>& guesses,
                            std::vector<std::int32_t>& parents) {
    static_cast<void>(room), static_cast<void>(parents);
    propose(most, guesses);
  }

  /// What the model chose at the rows of the last proposal: choices[0] follows the last known token, choices[i + 1] its
  /// guess i; fewer if guesses were left out at the end, below 0 where it is not known. Before the `append` of those
  /// that were accepted.
  virtual void observe_tree(std::span<const token_id> choices) { static_cast<void>(choices); }

  /// The grade of what `propose` would now propose, below `grades`. Acceptance is measured for each grade apart.
  virtual std::size_t grade() const { return 0; }

  /// The first of what `propose` would now propose, as far as it can tell: acceptance is measured by it also while
  /// nothing is proposed.
  virtual std::optional<token_id> first() const { return std::nullopt; }

  /// Whether `propose` would now propose anything.
  virtual bool ready() const { return true; }

  /// What the model chose at every row of the last proposal, also behind the first wrong guess: choices[0] follows the
  /// last known token, choices[i] its guess i. Fewer than guesses + 1 if rows were left out at the end. Called before
  /// the `append` of those that were accepted.
  virtual void observe(std::span<const token_id> choices) { static_cast<void>(choices); }
};

/// Makes the drafter of a sequence; may return null.
using drafter_factory = std::function<std::unique_ptr<drafter>(sequence_id id, std::span<const token_id> prompt)>;

} // namespace troupe
