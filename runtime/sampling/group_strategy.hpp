// Decides how the sequences of one request that are judged together go on. At each position the strategy sees the
// logits of all of them and decides which continue, with which tokens, and which are forked or end. The scheduler
// carries this out and knows no strategy by name: techniques have them.
#pragma once

#include "runtime/sampling/sampler.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/types.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A finished sequence of a group.
struct hypothesis {
  std::vector<sampled_token> tokens; // generated; `top` as sampling_params::logprobs asks
  double cumulative_logprob = 0;     // of its tokens
  double score = 0;                  // what hypotheses are ranked by
};

/// One sequence of the group after a position was judged: `parent` and one more token.
struct group_child {
  std::uint32_t parent = 0; // place among the sequences that were judged
  token_id token = 0;
  // Not empty: another answer, whose last token is `token`. It has `parent`'s blocks as far as both begin alike.
  std::vector<token_id> anew = {};
};

/// What a token adds to the text of an answer; nothing for those that are not shown.
using token_text = std::function<std::string(token_id)>;
using token_text_ptr = std::shared_ptr<const token_text>;

/// A pure function of the transcript: given the same logits, a new strategy arrives at the same state.
class group_strategy {
public:
  virtual ~group_strategy() = default;

  using rows = std::span<const std::span<const float>>;

  /// The next position. `logits[i]` [vocab] follow the i-th sequence, in the order of the children of the last call; at
  /// first the prompt is the only sequence. `allowed[i]` is the same row with minus infinity for the tokens that must
  /// not be chosen. Returns the sequences that go on, at most sampling_params::width(); none: the group has ended.
  /// Throws failure(internal) if no token can be chosen.
  virtual std::vector<group_child> judge(rows logits, rows allowed, sampling_scratch& scratch) = 0;
  std::vector<group_child> judge(rows logits, sampling_scratch& scratch) { return judge(logits, logits, scratch); }

  /// Answers whose values the outcome of the last call waits for; mostly none. While there are any, what the call has
  /// returned says nothing, and `go_on` tells what it comes to, perhaps to wait for others.
  virtual std::vector<std::vector<token_id>> awaited() const { return {}; }
  virtual std::vector<group_child> go_on(std::span<const double> values);

  /// After the end: the n best hypotheses, best first. None if the answer was told token by token.
  virtual std::vector<hypothesis> results() const = 0;

  /// The token of the answer that the last call has settled; null if the answer is told at its end.
  virtual const sampled_token* told() const { return nullptr; }
};

/// A group's beginning. `params` have been validated and are grouped().
struct group_start {
  std::shared_ptr<const sampling_params> params;
  std::vector<token_id> eos_ids;
  std::span<const token_id> prompt;
  std::span<const token_id> emitted = {}; // of a transcript that is resumed,
  float mirostat_mu = 0;                  // and its state
  token_text_ptr text = {};               // null: without stop strings
};

/// The strategy of the technique that judges the sequences.
std::unique_ptr<group_strategy> make_group_strategy(std::shared_ptr<const sampling_params> params,
                                                    std::vector<token_id> eos_ids, std::span<const token_id> prompt,
                                                    std::span<const token_id> emitted = {}, float mirostat_mu = 0,
                                                    token_text_ptr text = {});

} // namespace troupe
