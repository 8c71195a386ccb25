// From logits to tokens for one sequence. A step_sampler owns one sequence_sampler per running sequence and one
// sampling_scratch per sampling thread. A sampler can be dropped and rebuilt from the transcript at any time.
//
// The algorithm is exact, so that every backend samples the same token:
// 1. Processors edit, scale and filter the logits in the order given at sampling_params.
// 2. Each candidate gets the integer weight round(exp(logit - max) * 2^40), exp computed in single-rounded float
//    operations (vector_passes.hpp); tokens under 2^-41 of the likeliest weigh nothing.
// 3. offset = floor(bits * total / 2^64) with random_bits(seed, position, index), see philox.hpp.
// 4. The tokens' weights are laid end to end by ascending id; the token that covers the offset is chosen. Integer sums
//    are exact in any order, so threads, vector widths and tree reductions cannot change the choice. Order by id needs
//    no sort: a parallel implementation sums blocks, finds the block and then the token in it.
#pragma once

#include "runtime/sampling/candidates.hpp"
#include "runtime/sampling/processors/extended_sampler.hpp"
#include "runtime/sampling/sampled_token.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/sampling/token_counts.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Why a token could not be sampled.
inline constexpr const char* nothing_to_choose = "No token can be chosen: every logit is NaN or minus infinity.";

/// The failure of a request that excludes all tokens although the logits are in order: bad_request.
failure nothing_allowed(const sampling_params& params);

/// Rows that a row of logits is contrasted with, by a technique (technique_use::contrast); mostly none.
using other_rows = std::span<const std::span<const float>>;

/// Buffers reused from row to row. Any scratch serves any sequence, one at a time.
struct sampling_scratch {
  std::vector<float> row; // [vocab], edited or scaled logits
  candidates tokens;
};

/// The state of sampling one sequence, derived from its transcript (prompt + emitted ids).
class sequence_state {
public:
  sequence_state(std::shared_ptr<const sampling_params> params, std::vector<token_id> eos_ids,
                 std::span<const token_id> prompt, std::span<const token_id> emitted, std::uint32_t index);

  const sampling_params& params() const { return *params_; }
  const std::shared_ptr<const sampling_params>& shared_params() const { return params_; }
  std::span<const token_id> eos_ids() const { return eos_ids_; }
  std::uint32_t index() const { return index_; }
  std::uint64_t position() const { return position_; } // of the next token, for its random bits
  std::uint64_t emitted() const { return emitted_; }
  const token_counts& counts() const { return counts_; } // kept if a penalty uses them
  bool uses_counts() const;

  /// Appends the next token; returns whether and why it is the last.
  enum sampled_token::finish append(token_id id);

private:
  enum sampled_token::finish finish_of(token_id id) const;
  void count(token_id id);

  std::shared_ptr<const sampling_params> params_;
  std::vector<token_id> eos_ids_;
  token_counts counts_;
  std::uint64_t position_;
  std::uint64_t emitted_ = 0;
  std::uint32_t index_;
};

/// Sets the log-probability of `token.id` in the model's own distribution, and `top` to the `count` likeliest tokens.
/// `logits` [vocab] is what `tokens.reset` takes.
void describe(std::span<const float> logits, std::size_t count, candidates& tokens, sampled_token& token);

class sequence_sampler {
public:
  /// `index` numbers the sequences of one request. `params` have been validated. `mirostat_mu`: of the last emitted
  /// token.
  sequence_sampler(std::shared_ptr<const sampling_params> params, std::vector<token_id> eos_ids,
                   std::span<const token_id> prompt, std::span<const token_id> emitted, std::uint32_t index,
                   float mirostat_mu = 0);

  /// Chooses the next token from `logits` [vocab] and appends it to the transcript. With the transcript unchanged,
  /// throws failure(internal) if every logit is NaN or minus infinity, failure(bad_request) if the request excludes
  /// all.
  sampled_token sample(std::span<const float> logits, sampling_scratch& scratch);

  /// Chooses the next token from `allowed` [vocab] instead: the logits, minus infinity for tokens that a constraint forbids.
  /// `others`: the row that it is contrasted with, if there is one.
  sampled_token sample(std::span<const float> logits, std::span<const float> allowed, sampling_scratch& scratch,
                       other_rows others = {});

  /// Appends `id` without a choice; `logits` [vocab] are read for log-probabilities alone.
  sampled_token take(token_id id, std::span<const float> logits, sampling_scratch& scratch);

  const sampling_params& params() const { return state_.params(); }

  // Used by strategies of groups, which choose among the continuations of several sequences:

  /// `scores` [vocab] after all edits: unchanged, or an edited copy in `row`, where they may be already.
  std::span<const float> edited(std::span<const float> scores, std::vector<float>& row) const;

  /// Leaves the candidates of `scores` [vocab] in `tokens`: after temperature and filters, each of which keeps at least
  /// the `least` likeliest. One must be above minus infinity.
  void filter(std::span<const float> scores, std::size_t least, candidates& tokens) const;

  /// The next token of the transcript, chosen elsewhere.
  enum sampled_token::finish append(token_id id);

  /// What it would choose from `logits`, `ahead` tokens after the transcript (penalties count the transcript alone).
  /// Throws as `sample`.
  token_id guess(std::span<const float> logits, std::uint64_t ahead, sampling_scratch& scratch,
                 other_rows others = {}) const;

private:
  std::span<const float> edit(std::span<const float> logits, std::vector<float>& row) const;
  sampled_token take(extended_choice choice, std::span<const float> logits, sampling_scratch& scratch);
  std::span<const float> contrast(std::span<const float> edited, std::span<const float> logits, other_rows others,
                                  std::vector<float>& row) const;
  extended_choice choose(std::span<const float> allowed, other_rows others, std::uint64_t position,
                         sampling_scratch& scratch) const;
  extended_choice choose(std::span<const float> logits, std::span<const float> allowed, other_rows others,
                         std::uint64_t position, sampling_scratch& scratch) const;

  sequence_state state_;
  std::optional<extended_sampler> extended_; // if the request uses one
};

} // namespace troupe
