// How long an answer is expected to become: a distribution over buckets of tokens, each twice as wide as the one
// before, within which all lengths are as likely. Plain values; what they say of an answer that has begun is conditioned
// on what it has already.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe {

class answer_length {
public:
  /// Bucket i holds the lengths of [2^i, 2^(i + 1)) tokens; an answer without tokens counts as one token.
  static constexpr std::size_t buckets = 21;
  using shares = std::array<double, buckets>;

  static std::size_t bucket_of(std::int64_t tokens);

  /// `of`: of all answers, not negative; their sum counts as 1. `most`: tokens at which an answer is cut, so that longer
  /// ones become exactly that long; at least 1.
  answer_length(const shares& of, std::int32_t most);

  /// The mean of the tokens that follow the first `produced` ones; 0 behind the last possible one.
  double mean_left(std::int32_t produced) const;

  /// How many tokens follow at most, with probability `share` in (0, 1).
  double quantile_left(double share, std::int32_t produced) const;

  /// The probability of the bucket of `tokens`, and that of all shorter buckets. From the bucket of `most` on, all is
  /// one bucket.
  double share(std::int32_t tokens) const { return shares_[place(tokens)]; }
  double share_below(std::int32_t tokens) const;

  std::int32_t most() const { return most_; }

private:
  std::size_t place(std::int32_t tokens) const;
  /// The lengths of a bucket that are longer than `produced`, [first, end), and their probability.
  struct stretch {
    double first = 0, end = 0, share = 0;
  };
  stretch rest_of(std::size_t bucket, std::int32_t produced) const;

  shares shares_{};
  std::int32_t most_;
};

} // namespace troupe
