// The beams of one beam search: how the running ones are extended, which finished ones are kept, and when the search
// has ended. The definition is transformers' `_beam_search` (5.12), scores in double precision.
#pragma once

#include "runtime/sampling/groups/group_endings.hpp"
#include "runtime/sampling/groups/group_texts.hpp"
#include "runtime/sampling/groups/row_likelihoods.hpp"
#include "runtime/sampling/groups/token_tree.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/techniques/beams/technique.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// The rows of one position, in the order in which they were judged.
struct judged_rows {
  std::vector<judged_row> rows;
  std::size_t emitted = 0; // tokens of each running sequence
  const group_texts* texts = nullptr;
};

/// How much less likely a token counts because other groups chose it at this position: its id, and the sum of
/// penalties.
struct token_penalty {
  token_id id = 0;
  double penalty = 0;
};

class beam_group {
public:
  struct rules {
    std::size_t width = 1; // beams
    double length_penalty = 1;
    early_stopping stopping = early_stopping::off;
    std::size_t max_tokens = 1;
    /// Set for transformers' group beam search: whether a better sequence is possible is asked of those that have just
    /// ended, too, and early stopping comes before the limit of tokens.
    bool one_of_several = false;
    /// Set for transformers' beam sampling: extensions are drawn, and the best of those that were drawn go on.
    bool sampled = false;
    std::uint64_t seed = 0, prompt_tokens = 0; // for the draws
  };

  /// A running sequence and its place among the judged rows.
  struct beam {
    token_tree::leaf last = token_tree::root;
    double score = 0;    // sum of log-probabilities, less penalties
    double logprob = 0;  // the sum alone
    std::size_t row = 0; // of the last judged position
    token_id token = 0;
  };

  struct finished {
    token_tree::leaf last = token_tree::root;
    enum sampled_token::finish why = sampled_token::finish::length;
    double score = 0; // over length ^ length_penalty
    double logprob = 0;
  };

  explicit beam_group(const rules& r) : rules_(r), running_{{}} {}

  bool done() const { return done_; }

  /// Extends each running beam, which follows judged row `rows_of[i]`, by a token. `penalties` by ascending id.
  /// Returns the tokens of the best `width` extensions other than by EOS or a stop id, also if the search ends here.
  std::vector<token_id> extend(judged_rows& judged, std::span<const std::size_t> rows_of,
                               std::span<const token_penalty> penalties, const group_endings& endings,
                               token_tree& tree);

  /// Best first; empty once done().
  std::span<const beam> running() const { return running_; }

  /// In no particular order; at most `width`.
  std::span<const finished> best() const { return finished_; }

private:
  /// A running beam and one more token.
  struct extension {
    double score = 0;
    std::size_t parent = 0; // among the running beams
    token_id id = 0;
    double logprob = 0;                           // of the token
    bool operator<(const extension& other) const; // better first
  };

  std::vector<extension> likeliest(const judged_rows& judged, std::span<const std::size_t> rows_of,
                                   std::span<const token_penalty> penalties, const group_endings& endings) const;
  std::vector<extension> draw(judged_rows& judged, std::span<const std::size_t> rows_of,
                              const group_endings& endings) const;
  void keep(const finished& one);
  bool full() const { return finished_.size() == rules_.width; }
  bool can_improve(double best_score, std::size_t tokens) const;

  rules rules_;
  std::vector<beam> running_;
  std::vector<finished> finished_; // by descending score; of equal ones the earliest first
  bool done_ = false;
};

} // namespace troupe
