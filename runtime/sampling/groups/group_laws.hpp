// Processors and filters for the sequences of a group, each with a transcript of its own. They apply to
// log-probabilities (the log-softmax of the logits), as in transformers' beam search, where a repetition penalty makes
// every token that occurred less likely.
#pragma once

#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/groups/row_likelihoods.hpp"
#include "runtime/sampling/sampler.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

class group_laws {
public:
  /// At first of the prompt alone.
  group_laws(std::shared_ptr<const sampling_params> params, std::vector<token_id> eos_ids,
             std::span<const token_id> prompt);

  /// Leaves in scratch.tokens what may follow sequence `row`, by its edited log-probabilities. `of`: those of `logits`;
  /// `allowed`: minus infinity for what must not be chosen. Returns whether anything may follow.
  bool read(std::size_t row, std::span<const float> logits, std::span<const float> allowed, const row_likelihoods& of,
            sampling_scratch& scratch) const;

  /// Reads what remains after temperature and filters, each of which keeps the `least` likeliest tokens.
  bool read_filtered(std::size_t row, std::span<const float> logits, std::span<const float> allowed,
                     const row_likelihoods& of, std::size_t least, sampling_scratch& scratch) const;

  /// The sequences that go on, each after one more token.
  void advance(std::span<const group_child> children);

private:
  std::span<const float> edit(std::size_t row, std::span<const float> logits, std::span<const float> allowed,
                              const row_likelihoods& of, sampling_scratch& scratch) const;

  std::vector<sequence_sampler> laws_; // of the running sequences
};

} // namespace troupe
