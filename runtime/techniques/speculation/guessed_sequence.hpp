// One sequence that is guessed: its sources of guesses, what they offer, and the proposal that a step verifies. Owned by
// the speculator; single-threaded. Derivable from the transcript.
#pragma once

#include "runtime/techniques/guesser.hpp"
#include "runtime/techniques/speculation/drafted_text.hpp"
#include "runtime/techniques/speculation/drafter.hpp"
#include "runtime/techniques/speculation/guess_offer.hpp"
#include "runtime/techniques/speculation/guess_terms.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

class guessed_sequence {
public:
  using source = guess_terms::source;
  using enum guess_terms::source;

  struct verdict {
    std::size_t judged = 0, right = 0; // guesses
  };

  /// Its sources are those of `mode`. Tables are sized for prompt and max_tokens. `terms` must outlive it. Begins with
  /// the tokens of `prompt`.
  guessed_sequence(guess_terms& terms, sequence_id id, speculation mode, std::shared_ptr<const sampling_params> params,
                   std::span<const token_id> prompt, std::span<const token_id> prediction);

  /// Tokens of the transcript, in order.
  void gain(std::span<const token_id> tokens);

  // -- decisions about the next step ------------------------------------------------------

  /// The source whose guesses promise most. `ask`: the draft model may still be asked.
  std::optional<source> choose(const decoding_sequence& d, const plain_step& step, bool ask);
  guess_option option(const decoding_sequence& d, source from);
  /// Whether the number of guesses is not to be chosen.
  bool has_own_shape(source from) const { return from == lookahead && drafters_[lookahead]->branches(); }

  // -- the proposal -------------------------------------------------------------------------

  guess_run propose(const decoding_sequence& d, source from, std::size_t guesses);
  bool is_proposed() const { return proposed_.has_value(); }
  /// What the model chose at the rows of the proposal, as guesser::judged has it; with its tokens.
  verdict judged(std::span<const token_id> choices);
  /// No step has computed it.
  void drop_proposal();

  // -- the draft model ----------------------------------------------------------------------

  drafted_text& draft_model() { return draft_; }
  const drafted_text& draft_model() const { return draft_; }
  void take_states(const state_rows& states, std::int32_t known) {
    draft_.take_states(states, known, std::exchange(right_, {}));
  }
  /// Guesses behind the likeliest line of the proposal.
  std::optional<guess_demand> demand_ahead();

private:
  struct proposal {
    source from{};
    std::uint8_t grade = 0; // of all; of those that were offered, each has its own
    std::vector<token_id> guesses;
    std::vector<std::int32_t> parents; // of a tree: see guess_run
  };

  /// What a source offers, for so many guesses behind each other.
  struct ranked_offer {
    int most = 0;
    ranked_guesses all;
  };

  void learn(std::span<const token_id> tokens);
  const ranked_guesses& offer(const decoding_sequence& d, source from);
  std::vector<token_id> right_line(std::span<const token_id> choices);

  guess_terms& terms_;
  sequence_id id_;
  std::array<std::unique_ptr<drafter>, sources> drafters_;
  drafted_text draft_;
  std::array<std::optional<ranked_offer>, sources> offers_; // until there are more tokens
  std::optional<proposal> proposed_;                        // in flight
  std::vector<std::int32_t> right_;                         // guesses of the last one, as it listed them
  unsigned turn_ = 0;                                       // of the sources when it is tried again
};

} // namespace troupe
