// Predicts how long answers become, from those that have ended. Requests whose prompts begin alike get alike answers, so
// there is a histogram for each beginning that was seen lately, of 16, 32, 64 and 128 tokens; the longer one counts the
// more, the more it has seen, and backs off to the shorter. The shortest backs off to a multinomial logistic regression
// over what else is known of a request, which is trained online (AdaGrad: Duchi et al. 2011). An answer that was cut
// says only that it would have become longer: it counts in the longer buckets as they were predicted.
//
// What it learns and predicts never changes a result. Bounded; single-threaded. A prediction for schedulers is
// TetriInfer's (Hu et al. 2024), where a small model classifies the prompt's text instead.
#pragma once

#include "runtime/scheduling/lengths/answer_length.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe {

/// What is known of a request before it is answered.
struct length_signs {
  std::vector<std::uint64_t> chain = {}; // block_chain of its prompt (block_chain.hpp); only the first 8 count
  std::int32_t prompt_tokens = 0;
  std::int32_t most = 1; // tokens at which its answer is cut
  bool constrained = false, chat = false;
  std::uint64_t variant = 0, client = 0; // hashes of their names; 0: none
};

/// How good the predictions were, in sums over answers that ended.
struct length_scores {
  std::uint64_t answers = 0;
  double log_loss = 0;                        // of predictions, in nats
  double marginal_log_loss = 0;               // of the histogram of all answers
  std::array<std::uint64_t, 10> deciles = {}; // in which tenth of its prediction an answer ended; even: calibrated
};

class length_model {
public:
  static constexpr std::size_t most_beginnings = 4096;

  length_model();
  length_model(length_model&&) = default;
  length_model& operator=(length_model&&) = default; // places in the list move with it

  answer_length predict(const length_signs& of) const;

  /// An answer has ended with so many tokens; `cut`: by the limit. `predicted`: for it, before it began.
  void learn(const length_signs& of, std::int32_t tokens, bool cut, const answer_length& predicted);

  const length_scores& scores() const { return scores_; }
  /// Answers that it has learned from, also before it was loaded.
  std::uint64_t seen() const;

  /// All that it has learned, as bytes of a version; not the scores.
  std::string saved() const;
  /// False, and nothing changes, if these are not such bytes, of this version and undamaged.
  bool load(std::string_view bytes);

private:
  using shares = answer_length::shares;
  static constexpr std::array<std::size_t, 4> depths{1, 2, 4, 8}; // blocks
  static constexpr std::size_t named = 16;                        // places that names of one kind share
  static constexpr std::size_t features = 6 + 2 * named;

  struct beginning {
    shares counts{};
    double all = 0;
    std::list<std::uint64_t>::iterator place; // in order_
  };
  struct feature {
    std::size_t index;
    double value;
  };

  static std::vector<feature> features_of(const length_signs& of);
  static std::vector<std::uint64_t> beginnings_of(const length_signs& of);
  shares regress(const std::vector<feature>& of) const;
  shares shares_for(const length_signs& of) const;
  void count(std::uint64_t hash, const shares& what);

  std::array<std::array<double, features>, answer_length::buckets> weights_{}, steepness_{};
  shares marginal_{};
  std::unordered_map<std::uint64_t, beginning> beginnings_; // by hash
  std::list<std::uint64_t> order_;                          // longest unused first
  length_scores scores_;
};

} // namespace troupe
