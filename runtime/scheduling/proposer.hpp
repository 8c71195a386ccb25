// What the scheduler asks for guesses of how sequences go on. Guesses decide how fast tokens come, never which.
#pragma once

#include "runtime/scheduling/step.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// What guesses for a sequence may be derived from.
struct proposer_start {
  sequence_id sequence;
  std::shared_ptr<const sampling_params> params;
  token_list prompt;
  token_list prediction; // of the answer; null: none
};

/// A sequence that decodes, and whose tokens are all known, is to have rows in the next step.
struct proposal {
  sequence_id sequence;
  std::int32_t most = 0; // guesses
  std::vector<token_id> guesses = {};
  bool wants_choices = false; // what the model would choose behind wrong guesses is reported, too
};

class proposer {
public:
  virtual ~proposer() = default;

  /// A sequence starts with `tokens`: its prompt, and what was generated before.
  virtual void begin(const proposer_start& start, std::span<const token_id> tokens) = 0;
  virtual void append(sequence_id id, token_id token) = 0;
  virtual void end(sequence_id id) = 0;

  /// Whether guesses for its next step are likely. Then it is planned when its tokens are known, not ahead.
  virtual bool expects(sequence_id id) const = 0;

  /// Whether guesses are being made elsewhere, and worth waiting for.
  virtual bool pending(sequence_id id) const { return static_cast<void>(id), false; }

  /// Fills in guesses for the sequences that decode in the next step. `rows`: of the step so far.
  virtual void propose(std::span<proposal> decoding, std::int32_t rows) = 0;

  /// How right its guesses were; before the `append` of the accepted ones.
  virtual void judged(const judged_guesses& outcome) = 0;
};

} // namespace troupe
