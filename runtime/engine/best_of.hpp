// Which of the candidates of a best_of request are returned: their log-probabilities as tokens come, whether one can
// still win, and the n best in the end. The result is the same in whatever order the candidates' tokens arrive.
// Single-threaded; owned by the request actor.
#pragma once

#include "runtime/sampling/sampling_params.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

class best_of {
public:
  /// `params`: validated, with best_of > n.
  explicit best_of(const sampling_params& params);

  struct ranked {
    std::uint32_t candidate = 0;
    double cumulative_logprob = 0;
    double score = 0; // the sum or the mean of its tokens' log-probabilities
  };

  /// A candidate's next token, by its log-probability under the model's own distribution.
  void add(std::uint32_t candidate, float logprob);

  /// The candidate has all its tokens. At least one was added.
  void finish(std::uint32_t candidate);

  /// Whether the unfinished candidate can no longer be among the n best, whatever its further tokens are: n finished
  /// ones have a score that it cannot reach.
  bool hopeless(std::uint32_t candidate) const;

  /// The n best finished candidates, best first; of equal ones, the lower index. Candidates given up as hopeless do not
  /// change it.
  std::vector<ranked> best() const;

private:
  struct candidate {
    double sum = 0; // of log-probabilities; never rises
    std::size_t tokens = 0;
    bool finished = false;
  };

  double score(const candidate& one) const;

  std::size_t n_;
  best_of_rank rank_;
  std::size_t max_tokens_;
  std::vector<candidate> candidates_;
  std::vector<double> winning_; // scores of the n best finished ones, falling
};

} // namespace troupe
