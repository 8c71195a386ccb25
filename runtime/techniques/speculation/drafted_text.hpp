// What the draft model has been told of one sequence, and has guessed of it: in turn, or ahead while a step verifies a
// proposal. Owned by a guessed_sequence; single-threaded.
#pragma once

#include "runtime/techniques/guess_request.hpp"
#include "runtime/techniques/guesser.hpp"
#include "runtime/techniques/speculation/ahead_guesses.hpp"
#include "runtime/techniques/speculation/guess_offer.hpp"
#include "runtime/techniques/speculation/guess_terms.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

class drafted_text {
public:
  /// `terms` must outlive it.
  drafted_text(guess_terms& terms, sequence_id id, std::shared_ptr<const sampling_params> params,
               std::size_t prompt_tokens)
    : terms_(terms), id_(id), params_(std::move(params)), prompt_tokens_(prompt_tokens) {}

  /// Before there are tokens: the draft model may serve it.
  void serve() { served_ = true; }
  bool is_served() const { return served_; }

  /// Tokens of the transcript. What was drawn is of others then.
  void gain(std::span<const token_id> tokens);

  bool is_known() const { return served_ && unsent_.size() < tokens_; }
  /// Whether its prefill of the transcript costs less than its guesses will gain.
  bool is_worth_catching_up(const plain_step& step) const;

  /// `right`: the guesses of the last proposal that were right, as it listed them. Without the others' states, which are
  /// of another text. Keeps those of the last tokens alone, where a sequence has no guesses for long.
  void take_states(const state_rows& states, std::int32_t known, std::span<const std::int32_t> right);

  /// With what has not been told yet.
  guess_demand demand(int guesses);
  void let_branch(guess_demand& demand, const decoding_sequence& d, const plain_step& step) const;
  void answered(const guess_answer& answer);

  /// Behind `line`, the likeliest of what a step verifies; nullopt: the answer ends before.
  std::optional<guess_demand> demand_ahead(std::vector<token_id> line);
  void answered_ahead(const guess_answer& answer);
  /// Whether the tokens that have come leave some of the guesses ahead possible.
  bool is_open_ahead() const { return ahead_ && ahead_->is_open(); }

  /// The guesses of the tokens that follow, once they are known: a line, and what could stand in place of its guesses.
  const std::optional<std::vector<offered_guess>>& drawn() const { return drawn_; }
  /// Whether they were made while a step was computed.
  bool is_drawn_ahead() const { return drawn_ahead_; }

private:
  void settle_ahead();

  guess_terms& terms_;
  sequence_id id_;
  std::shared_ptr<const sampling_params> params_;
  std::size_t prompt_tokens_, tokens_ = 0;
  bool served_ = false;
  std::vector<token_id> unsent_;   // tokens that the draft model has not been told
  std::size_t lag_ = 0;            // tokens that it has not computed
  std::vector<state_rows> states_; // that it has not been given; if they are wanted
  std::optional<std::vector<offered_guess>> drawn_;
  bool drawn_ahead_ = false;
  std::optional<ahead_guesses> ahead_; // that are being made, or were
};

} // namespace troupe
