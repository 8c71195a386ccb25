// The tokens that may still be chosen for one position. Starts as the whole vocabulary over a borrowed row of logits;
// filters shrink it to a list. One per sampling thread, reused from row to row to save allocations.
#pragma once

#include "runtime/support/types.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

class candidates {
public:
  /// Starts over with every token of `logits` [vocab], which must outlive the use, times `factor`, which is positive:
  /// the reciprocal of a temperature, without a pass of its own. NaN counts as minus infinity, plus infinity as the
  /// largest float. Throws failure(internal) if no logit is above minus infinity.
  void reset(std::span<const float> logits, float factor = 1);

  std::size_t size() const { return listed_ ? count_ : row_.size(); }

  /// The largest logit, finite. Filters keep it, or settle() for another.
  float max() const { return max_; }

  /// The lowest id that has the largest logit.
  token_id likeliest() const;

  /// Drops every token with a logit below `floor` (at most max()) and lists the others.
  void narrow(float floor);

  /// Lists all tokens at or above a floor, which it returns: the likeliest, as far as they weigh `enough` together, and
  /// some more. `least` is a floor that is low enough.
  float narrow_to_weight(std::uint64_t enough, float least);

  /// Makes all tokens of the row candidates again, as after reset().
  void widen() { listed_ = false; }

  /// Drops the listed tokens for which `keep(id, logit)` is false.
  template <class Predicate>
  void keep_if(Predicate keep) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const auto id = ids_[i];
      const auto logit = logits_[i];
      ids_[kept] = id;
      logits_[kept] = logit;
      kept += keep(id, logit);
    }
    count_ = kept;
  }

  /// Maps the logits of all candidates by a non-decreasing function. Lists them.
  template <class F>
  void reshape(F f) {
    narrow(std::numeric_limits<float>::lowest());
    for (std::size_t i = 0; i < count_; ++i)
      logits_[i] = f(logits_[i]);
    max_ = f(max_);
  }

  /// Lists these tokens, of which each is listed or was dropped, again; ascending ids.
  void restore(std::span<const std::pair<token_id, float>> tokens);

  /// To be called after keep_if() has dropped the likeliest of the listed tokens. One must be left.
  void settle() { max_ = *std::max_element(logits_.begin(), logits_.begin() + static_cast<std::ptrdiff_t>(count_)); }

  /// After narrow(): the remaining tokens, by ascending id.
  std::span<const token_id> ids() const { return {ids_.data(), count_}; }
  std::span<const float> logits() const { return {logits_.data(), count_}; }

  /// The k-th largest logit, counting equal ones separately (k >= 1; minus infinity if there are fewer). Narrows to a
  /// superset of the k likeliest tokens.
  float kth_largest(std::size_t k);

  /// Sum of all tokens' weights exp(logit - max()) in fixed point, 2^40 for the likeliest token.
  std::uint64_t total_weight();

  /// Two bounds of total_weight(), close to each other, in far less time: of a whole row only the tokens are weighed that
  /// weigh something.
  std::pair<std::uint64_t, std::uint64_t> bound_total_weight();

  /// The natural logarithm of the sum of exp(logit - max()).
  double log_total();

  /// After narrow(): each listed token's fixed-point weight; valid until the next non-const call.
  std::span<const std::uint64_t> weights();

  /// Draws a token with probability weight / total_weight(): with the tokens laid out by ascending id, each as long as
  /// its weight, the one that covers offset floor(bits * total / 2^64).
  token_id sample(std::uint64_t bits);

private:
  void list(float floor);

  std::span<const float> row_;      // [vocab]
  float factor_ = 1;                // of row_
  std::vector<float> block_maxima_; // of row_ times factor_
  float max_ = 0;
  bool listed_ = false;   // whether ids_ and logits_ list the candidates; else all of row_
  std::size_t count_ = 0; // of listed candidates, at the front of both
  std::vector<token_id> ids_;
  std::vector<float> logits_;
  std::vector<std::uint64_t> weights_; // of the listed tokens, or of row_'s blocks
  std::vector<float> values_;          // scratch of kth_largest
  std::vector<float> clamped_;         // replaces a row that holds plus infinity
};

/// The weight that makes up the share `p` (in units of 2^-32) of `total`, rounded up; at least 1. In integers, so that
/// the edge of a set does not depend on the order of summation.
std::uint64_t share_of(std::uint64_t total, float p);

} // namespace troupe
