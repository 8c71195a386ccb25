// The hook by which a technique guesses how sequences go on. A scheduler owns a guesser, and verifies guesses in its
// steps: they decide how fast tokens come, never which. Single-threaded. What takes long to guess is left to a
// guess_model, whose thread waits for it.
//
// The scheduler's calls, step by step:
//
// begin      a sequence runs, and may have guesses
// waits      instead of planning ahead: shall the next step be planned only when all tokens are known?
// collect    all tokens are known: what to ask the guess_model, if anything; then the step is held back while `asked`
// deliver    its reply
// propose    guesses for the sequences that decode in the step being planned
// collect_ahead  the step was planned: what to ask the guess_model while it is computed, if anything
// judged     the choices at the rows of a sequence that had guesses; `append`: the tokens of one that had none
// finished   the step is over
// end        the sequence has ended, or was preempted
#pragma once

#include "runtime/support/types.hpp"
#include "runtime/techniques/guess_request.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// A step without its guesses.
struct plain_step {
  int rows = 0;      // all, those of prompts included
  int sequences = 0; // that decode: each gains one token
};

/// What a step takes.
struct step_estimate {
  double ms = 0;        // expected
  bool certain = false; // to about a quarter
};

/// What a step of so many rows takes at the present context.
using step_cost_fn = std::function<step_estimate(int rows)>;

/// A step whose tokens have arrived.
struct finished_step {
  plain_step plain;
  double ms = 0;          // since the end of the step before it, or since it could begin
  double computed_ms = 0; // of these, what step_cost learns from
  double plain_ms = 0;    // that would have been computed without guesses, as expected now
  double added_ms = 0;    // by which guesses prolong it, as expected now
  bool certain = false;   // these expectations rest on enough steps of such sizes
};

/// A sequence of a step being planned that decodes: all but its last known token are computed.
struct decoding_sequence {
  sequence_id id;
  int most = 0;         // guesses behind each other that there is room for, in its context and its max_tokens
  bool branches = true; // guesses that branch can be computed
};

/// Guesses of the tokens of one sequence that follow: a line, or a tree.
struct guess_run {
  std::vector<token_id> tokens = {};
  std::vector<std::int32_t> parents = {}; // of each guess the one before it, which comes earlier; -1: the last known
                                          // token. Empty: each follows the one listed before it
  bool predicted = false;                 // all are of the request's prediction, not of the server's own making
  bool ahead = false;                     // they were made while the step before was computed
};

class guesser {
public:
  virtual ~guesser() = default;

  /// `known`: prompt and tokens emitted so far.
  virtual void begin(sequence_id id, std::shared_ptr<const sampling_params> params, std::span<const token_id> known,
                     std::size_t prompt_tokens, std::span<const token_id> prediction) = 0;
  virtual void end(sequence_id id) = 0;

  /// Whether to plan the next step only when the tokens of all steps in flight are known, because guesses are expected
  /// to pay. Called when the step could be planned ahead; `decoding`: its sequences.
  virtual bool waits(const plain_step& step, std::span<const decoding_sequence> decoding) = 0;

  /// Whether it wants the hidden states of a sequence's rows, as `take_states`.
  virtual bool wants_states(sequence_id id) const {
    static_cast<void>(id);
    return false;
  }

  /// The hidden states of a sequence's rows in a step, after the calls of `judged` and `append`. Those from `known` on
  /// are of guesses.
  virtual void take_states(sequence_id id, const state_rows& states, std::int32_t known) {
    static_cast<void>(id), static_cast<void>(states), static_cast<void>(known);
  }

  /// What to ask the guess_model before the step is planned, with room for so many guesses.
  virtual std::optional<guess_request> collect(const plain_step& step, std::span<const decoding_sequence> decoding,
                                               int room) = 0;

  /// What to ask the guess_model while the step that was planned last is computed.
  virtual std::optional<guess_request> collect_ahead() { return std::nullopt; }

  virtual void deliver(const guess_reply& reply) = 0;

  /// Whether the guess_model has not replied yet, and the next step waits for it.
  virtual bool asked() const = 0;

  /// The guesses for each sequence, none for most; of all at most `room`. The scheduler may leave out the last ones. It
  /// leaves a tree its first guesses that are a line, where trees cannot be computed.
  virtual std::vector<guess_run> propose(const plain_step& step, std::span<const decoding_sequence> decoding,
                                         int room) = 0;

  /// What the model chose at the rows of a sequence that had guesses: choices[0] follows its last known token,
  /// choices[i + 1] its guess i. Returns how many guesses were right, and appends them and the choice that follows.
  virtual std::size_t judged(sequence_id id, std::span<const token_id> choices) = 0;

  /// Tokens that a sequence has gained in a step in which it had no guesses.
  virtual void append(sequence_id id, std::span<const token_id> tokens) = 0;

  /// A step is over. After the calls of `judged` and `append`.
  virtual void finished(const finished_step& step) = 0;
};

/// Makes the guesser of a scheduler, by what its steps cost: called only by the methods of the guesser. Empty: there are
/// no guesses.
using make_guesser = std::function<std::shared_ptr<guesser>(step_cost_fn)>;

/// Computes the guesses that a guesser asks for. Made, used and destroyed by one thread, which it blocks.
class guess_model {
public:
  virtual ~guess_model() = default;

  /// Throws device_error.
  virtual guess_reply serve(const guess_request& request) = 0;
};

} // namespace troupe
