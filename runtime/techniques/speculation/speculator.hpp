// Speculation as the scheduler sees it: guesses for the sequences of a step, from the source that promises most, in the
// number that pays. Owns the sequences and the policy; an actor carries the requests to the draft model.
// Single-threaded. Everything here can be derived from the transcripts, or is a measurement.
#pragma once

#include "runtime/techniques/guess_request.hpp"
#include "runtime/techniques/guesser.hpp"
#include "runtime/techniques/speculation/guess_terms.hpp"
#include "runtime/techniques/speculation/guessed_sequence.hpp"
#include "runtime/techniques/speculation/speculation_policy.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

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
  const speculation_policy& policy() const { return terms_.policy; }

private:
  struct plan {
    std::vector<guess_terms::source> from;
    std::vector<int> guesses;
    bool any = false;
  };

  /// `ask`: guesses of the draft model may still be asked for.
  plan decide(const plain_step& step, std::span<const decoding_sequence> decoding, int room, bool ask);
  bool waits_for_ahead() const;
  void take_ahead(const guess_reply& reply);

  guess_terms terms_;
  std::map<sequence_id, guessed_sequence> sequences_;
  speculation_counters counters_;

  std::uint64_t last_request_ = 0;
  bool asked_ = false;                        // the draft model has not replied
  std::shared_ptr<std::atomic<bool>> enough_; // of the request that guesses ahead
  bool beside_ = false;                       // the step in flight is computed beside such a one
  std::vector<sequence_id> ended_;

  // Since the last step was over.
  bool held_ = false;
  std::optional<bool> waits_; // the answer, until something changes: schedulers ask often
  int proposals_ = 0;         // in flight
  int guesses_ = 0, accepted_ = 0;
  double drawing_ms_ = 0, catch_up_ms_ = 0;
};

} // namespace troupe
