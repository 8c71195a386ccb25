// Speculation as the scheduler sees it: guesses for the sequences of a step, from the source that promises most, in the
// number that pays. Owns the drafters and the policy; an actor carries the requests to the draft model.
// Single-threaded. Everything here can be derived from the transcripts, or is a measurement.
#pragma once

#include "runtime/techniques/guess_request.hpp"
#include "runtime/techniques/guesser.hpp"
#include "runtime/techniques/speculation/ahead_guesses.hpp"
#include "runtime/techniques/speculation/drafter.hpp"
#include "runtime/techniques/speculation/guess_offer.hpp"
#include "runtime/techniques/speculation/lookahead_window.hpp"
#include "runtime/techniques/speculation/speculation_names.hpp"
#include "runtime/techniques/speculation/speculation_policy.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

struct speculation_settings {
  speculation mode = speculation::automatic; // of requests that leave it to the engine
  bool draft_model = false;                  // there is one
  bool mtp = false;                          // in its place, the model's own layers of multi-token prediction
  int most_guesses = 16;                     // of a sequence in one step; 0: no speculation at all
  lookahead_shape lookahead = {};            // of requests that ask for lookahead, whatever it costs
  drafter_factory custom = {};               // for benches: what it makes is a sequence's only source
  int forced = 0;                            // guesses of each sequence, whatever they cost; 0: as many as pay
  bool branches = true;                      // for benches: guesses may branch
  bool ahead = false; // the draft model has threads or a device of its own: it guesses on while the model verifies
};

struct speculation_counters {
  std::uint64_t drafts = 0, proposed = 0, accepted = 0; // proposals; their guesses; of these, right
  std::vector<std::uint64_t> accepted_at;               // [i]: proposals whose guess i was accepted
};

class speculator final : public guesser {
public:
  /// `cost`: of a step's rows at the present context; called only by the methods below.
  speculator(speculation_settings settings, step_cost_fn cost);
  ~speculator() override;

  /// Does nothing if the request wants no speculation. Tables are sized for prompt and max_tokens.
  void begin(sequence_id id, std::shared_ptr<const sampling_params> params, std::span<const token_id> known,
             std::size_t prompt_tokens, std::span<const token_id> prediction) override;
  void end(sequence_id id) override;

  bool waits(const plain_step& step, std::span<const decoding_sequence> decoding) override;
  std::optional<guess_request> collect(const plain_step& step, std::span<const decoding_sequence> decoding,
                                       int room) override;
  std::optional<guess_request> collect_ahead() override;
  bool asked() const override { return asked_ || waits_for_ahead(); }
  bool wants_states(sequence_id id) const override;
  void take_states(sequence_id id, const state_rows& states, std::int32_t known) override;
  void deliver(const guess_reply& reply) override;

  std::vector<guess_run> propose(const plain_step& step, std::span<const decoding_sequence> decoding,
                                 int room) override;
  std::size_t judged(sequence_id id, std::span<const token_id> choices) override;
  void append(sequence_id id, std::span<const token_id> tokens) override;
  void finished(const finished_step& step) override;

  const speculation_counters& counters() const { return counters_; }
  const speculation_policy& policy() const { return policy_; }

private:
  /// `undrawn`: the draft model's guesses before they are known.
  enum source : std::size_t { ngram, lookahead, jacobi, draft, custom, sources, undrawn = sources };

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

  struct sequence {
    std::shared_ptr<const sampling_params> params;
    std::size_t prompt_tokens = 0, tokens = 0;
    std::array<std::unique_ptr<drafter>, sources> drafters;
    bool drafts = false;          // the draft model may serve it
    std::vector<token_id> unsent; // tokens that the draft model has not been told
    std::size_t lag = 0;          // tokens that the draft model has not computed
    // The draft model's guesses of the tokens that follow: a line, and what could stand in place of its guesses.
    std::optional<std::vector<offered_guess>> drawn;
    bool drawn_ahead = false;                                // while a step was computed
    std::optional<ahead_guesses> ahead;                      // that are being made, or were
    std::array<std::optional<ranked_offer>, sources> offers; // until there are more tokens
    std::optional<proposal> proposed;                        // in flight
    std::vector<std::int32_t> right;                         // guesses of the last one, as it listed them
    std::vector<state_rows> states;                          // that it has not been given; if they are wanted
    unsigned turn = 0;                                       // of the sources when it is tried again
  };

  struct plan {
    std::vector<source> from;
    std::vector<int> guesses;
    bool any = false;
  };

  /// `ask`: guesses of the draft model may still be asked for.
  plan decide(const plain_step& step, std::span<const decoding_sequence> decoding, int room, bool ask);
  const ranked_guesses& offer(sequence& s, const decoding_sequence& d, source from);
  guess_option option(sequence& s, const decoding_sequence& d, source from);
  std::optional<source> choose(sequence& s, const decoding_sequence& d, const plain_step& step, bool ask);
  void let_branch(guess_demand& demand, const decoding_sequence& d, const plain_step& step) const;
  proposal proposal_of(sequence& s, const decoding_sequence& d, source from, std::size_t guesses, guess_run& run);
  void learn(sequence_id id, const sequence& s, std::span<const token_id> tokens);
  bool worth_catching_up(const sequence& s, const decoding_sequence& d, const plain_step& step) const;
  void gain(sequence_id id, sequence& s, std::span<const token_id> tokens);
  bool waits_for_ahead() const;
  void take_ahead(const guess_reply& reply);
  void settle_ahead(sequence& s);
  static std::vector<token_id> right_line(const proposal& proposed, std::span<const token_id> choices,
                                          std::vector<std::int32_t>& right);

  speculation_settings settings_;
  step_cost_fn cost_;
  speculation_policy policy_;
  std::map<sequence_id, sequence> sequences_;
  speculation_counters counters_;

  std::size_t room_ = 1; // guesses that a source may offer: fewer, the more sequences there are

  std::uint64_t last_request_ = 0;
  bool asked_ = false;                        // the draft model has not replied
  std::uint64_t ahead_request_ = 0;           // that guesses ahead and has no reply; 0: none
  std::shared_ptr<std::atomic<bool>> enough_; // of it
  bool beside_ = false;                       // the step in flight is computed beside such a one
  ahead_account ahead_;
  std::vector<sequence_id> ended_;
  /// The least of the last values: what other programs and waking up add is no property of a model. One alone says
  /// little.
  class least_of_last {
  public:
    void add(double value) {
      values_[count_++ % values_.size()] = value;
      least_ = *std::min_element(values_.begin(), values_.begin() + std::min(count_, values_.size()));
    }
    /// Called as time passes. What seems too dear would otherwise never be measured again.
    void fade() { least_ -= least_ / 4096; }
    double value() const { return count_ < 2 ? 0 : least_; } // 0: not known yet

  private:
    std::array<double, 8> values_{};
    std::size_t count_ = 0;
    double least_ = 0;
  };
  least_of_last pass_ms_, row_ms_; // of the draft model: a pass that draws, a row that catches up

  // Since the last step was over.
  bool held_ = false;
  std::optional<bool> waits_; // the answer, until something changes: schedulers ask often
  int proposals_ = 0;         // in flight
  int guesses_ = 0, accepted_ = 0;
  double drawing_ms_ = 0, catch_up_ms_ = 0;
};

} // namespace troupe
