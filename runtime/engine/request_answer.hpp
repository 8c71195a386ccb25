// The answer to one request, as its tokens come: a transcript for each sequence, which candidates of best_of win, the
// log-probabilities of its prompt, what was guessed, and when. Single-threaded; owned by the request actor, which hears
// of tokens and talks to the scheduler.
#pragma once

#include "runtime/engine/best_of.hpp"
#include "runtime/engine/generation.hpp"
#include "runtime/engine/transcript.hpp"
#include "runtime/sampling/group_strategy.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

class request_answer {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// `tell` gets the events, in order; if it throws, so does what was called. With a null `words` there is no text.
  request_answer(request_ptr what, std::shared_ptr<const tokenizer> words, std::shared_ptr<request_ledger> ledger,
                 std::function<void(token_event)> tell);

  /// The request was first planned then, with so many tokens of its prompt from the cache. Only the first call counts.
  void started(time_point when, std::int32_t cached);

  /// The next token of a sequence, below `size`. Returns the sequences that ended with it and that a scheduler still
  /// runs, as it cannot know; valid until the next call.
  std::span<const std::uint32_t> append(std::uint32_t index, const sampled_token& token, time_point now);

  /// Guesses of tokens that follow; `predicted`: by the request's prediction.
  void count_guesses(std::uint32_t right, std::uint32_t wrong, bool predicted);

  /// Log-probabilities of prompt tokens from `position` on (0 has none); what is known already is skipped, as a
  /// scheduler that goes on for another sends them again. Returns whether there was anything new.
  bool add_scores(std::size_t position, std::span<const sampled_token> tokens);

  /// Takes what a group found, best first.
  void conclude(std::span<const hypothesis> found, time_point now);
  void conclude(std::vector<float> embedding, time_point now);

  /// Ends the sequences that go on. What a group or an embedding has so far is no answer: see may_finish.
  void finish(finish_reason why);

  /// Ends the reasoning of those sequences that are within it: the tokens that close it follow what they have, and a
  /// scheduler has to go on from there. Returns whether there was one.
  bool end_reasoning();

  /// What another process needs to go on with it, and the same there: what was generated elsewhere is told again, as
  /// events that say so.
  std::vector<begun_sequence> begun() const;
  void replay(std::span<const begun_sequence> what, time_point now);
  bool may_be_handed_over() const { return may_finish() && !ranking_; }

  /// Whether a part of it can be told: not of a group, whose answers are found whole, nor if nothing is generated.
  bool may_finish() const;

  bool complete() const;      // all sequences have ended
  bool has_tokens() const;    // any of them has one
  bool awaits_scores() const; // of prompt tokens
  std::size_t size() const { return sequences_.size(); }
  std::uint64_t tokens() const; // how far it is: of the answer, and scored ones of the prompt
  std::optional<time_point> first_token() const { return first_token_; }

  /// The transcripts for another scheduler to go on from. Empty before the first token, while all n share one prompt.
  std::vector<resumed_sequence> unfinished() const;

  /// The last event, once it is complete; to be called once. Candidates that win are told here, best first.
  done_event close(time_point submitted, time_point now);

private:
  void deliver(std::size_t index, token_event e);
  void rank(std::uint32_t index, float logprob);
  void tell_scores(std::span<const sampled_token> tokens);
  bool close_reasoning(transcript& of);
  void tell_best();

  request_ptr what_;
  std::shared_ptr<const tokenizer> words_;
  std::shared_ptr<request_ledger> ledger_;
  std::function<void(token_event)> tell_;
  std::vector<transcript> sequences_; // candidates of best_of, or its n
  std::vector<std::uint32_t> ended_;  // by the last token
  std::optional<best_of> ranking_;
  std::vector<std::vector<token_event>> held_; // of candidates: told when all are known
  std::uint32_t accepted_guesses_ = 0, rejected_guesses_ = 0, accepted_predicted_ = 0, rejected_predicted_ = 0;
  std::uint32_t withheld_tokens_ = 0;
  std::vector<float> embedding_;
  std::size_t scored_ = 0; // prompt tokens whose log-probabilities were told
  std::uint32_t cached_tokens_ = 0;
  std::optional<time_point> started_, first_token_, last_token_;
};

} // namespace troupe
