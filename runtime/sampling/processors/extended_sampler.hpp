// What one sequence needs for samplers beyond temperature, top-k, top-p, min-p and plain penalties: edits that look at
// the order of its tokens, filters in the order that the request wants, mirostat and the edits of techniques. Only sequences that
// use any of them have one, so others pay nothing. Runs on the host, whatever the device.
//
// Its state is a function of the transcript, except for mirostat's mu, which depends on past logits. So mu goes with
// each sampled token to the scheduler and to the request, and comes back with the transcript.
#pragma once

#include "runtime/sampling/candidates.hpp"
#include "runtime/sampling/processors/repetition.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/techniques/hooks.hpp"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// One of the steps of `samplers`; `xtc_bits` decide whether XTC applies.
void run_step(const sampling_params& p, sampler_step step, candidates& tokens, std::uint64_t xtc_bits = 0);

/// A token and mirostat's state after it.
struct extended_choice {
  token_id id = 0;
  float mu = 0;
};

class extended_sampler {
public:
  /// `index`: the sequence's number in its request. `mu`: after the last emitted token; ignored if there is none.
  extended_sampler(std::shared_ptr<const sampling_params> params, std::span<const token_id> prompt,
                   std::span<const token_id> emitted, float mu, std::uint32_t index = 0);

  /// The next token of the transcript.
  void append(token_id id);
  float mu() const { return mu_; }
  void set_mu(float mu) { mu_ = mu; }

  // Edits of logits [vocab], in this order among those of sequence_sampler: at first,
  void add_biases(std::span<float> logits) const;
  /// in place of the penalty over all tokens, if the request limits its range,
  void penalise_recent(std::span<float> logits) const;
  /// and at last: DRY, tokens that are not allowed, repeated n-grams, techniques.
  void finish_edits(std::span<float> logits) const;

  /// The next token from edited logits.
  extended_choice choose(std::span<const float> logits, std::uint64_t position, std::uint32_t index,
                         candidates& tokens) const;

private:
  std::span<const token_id> recent(int range) const;

  std::shared_ptr<const sampling_params> params_;
  std::vector<token_id> transcript_; // kept only where something looks at it
  bool keeps_transcript_;
  std::optional<ngram_index> ngrams_;
  logits_edits edits_; // of techniques
  float mu_;
};

} // namespace troupe
