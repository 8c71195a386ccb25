// Draws different tokens from a row of logits, each with its probability among those that are left. Integers
// throughout, as in candidates::sample.
#pragma once

#include "runtime/sampling/candidates.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class weighted_draws {
public:
  /// Starts over with `logits` [vocab], read with the help of `tokens`. Throws failure(internal) if none is above minus
  /// infinity.
  void reset(std::span<const float> logits, candidates& tokens);

  /// Starts over with the candidates as they are.
  void reset(candidates& tokens);

  struct drawn {
    token_id id = 0;
    std::uint64_t weight = 0;
    float score = 0; // its logit
  };

  /// The logit of which the weight is 2^40.
  float max() const { return max_; }

  /// The weight of the tokens that are left.
  std::uint64_t total() const { return total_; }

  /// With the tokens that are left laid out by ascending id, each as long as its weight: the one that covers offset
  /// floor(bits * total() / 2^64). It is no longer left. Needs total() > 0.
  drawn draw(std::uint64_t bits);

private:
  // Reused from row to row.
  std::vector<token_id> ids_; // ascending; only tokens that weigh anything
  std::vector<float> scores_;
  std::vector<std::uint64_t> weights_;
  std::vector<std::uint64_t> sums_; // of blocks of tokens
  std::uint64_t total_ = 0;
  float max_ = 0;
};

} // namespace troupe
