// What one row of logits says about the next token: the log-probabilities of the model's own distribution, and the
// likeliest tokens.
#pragma once

#include "runtime/sampling/candidates.hpp"
#include "runtime/sampling/groups/weighted_draws.hpp"
#include "runtime/sampling/sampler.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class row_likelihoods {
public:
  struct token {
    token_id id = 0;
    double logprob = 0;
    double score = 0; // the log-probability, unless ranked by others
  };

  /// Reads `logits` [vocab] with the help of `tokens`; keeps the `count` likeliest tokens, fewer if only so many are
  /// above minus infinity. Throws failure(internal) if none is.
  row_likelihoods(std::span<const float> logits, std::size_t count, candidates& tokens)
    : row_likelihoods(logits, logits, count, tokens) {}
  /// Keeps tokens that are above minus infinity in `allowed` [vocab]; the others are part of the distribution all the
  /// same.
  row_likelihoods(std::span<const float> logits, std::span<const float> allowed, std::size_t count, candidates& tokens);

  /// Keeps instead the `count` best of `tokens` by their scores there; `logits`: as before.
  void rank(std::span<const float> logits, std::size_t count, candidates& tokens);
  /// Keeps none.
  void clear() { likeliest_.clear(); }

  /// Likeliest first, ties by lower id.
  std::span<const token> likeliest() const { return likeliest_; }

  /// The `count` first of them.
  std::vector<token_logprob> top(std::size_t count) const;

  /// The log-probability of a token with this logit.
  double logprob(float logit) const;

private:
  float max_ = 0;
  double log_total_ = 0; // of exp(logit - max_)
  std::vector<token> likeliest_;
};

/// A row and its place in a token_tree.
struct judged_row {
  row_likelihoods tokens;
  std::uint32_t place = 0;
  std::span<const float> logits = {};
  weighted_draws draws = {}; // where extensions are drawn
};

} // namespace troupe
