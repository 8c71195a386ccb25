// Whether an answer is the recorded one, and where it first is not. Plain data and pure functions.
#pragma once

#include "api/record/record_line.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace troupe {

struct record_difference {
  enum class kind : std::uint8_t {
    prompts, // another number of prompts, or of their tokens
    tokens,  // a token, or its log-probability
    ends,    // one goes on where the other has ended
    values,  // an embedding, or the log-probabilities of a prompt
  } what = kind::tokens;
  std::size_t prompt = 0, answer = 0, token = 0; // where
  std::optional<token_id> was = {}, is = {};     // none: it had ended
  float was_logprob = 0, is_logprob = 0;
};

struct record_comparison {
  std::optional<record_difference> first = {};
  std::size_t tokens = 0; // compared, up to the first difference
  double largest = 0;     // difference of log-probabilities, over the tokens that were the same
};

/// Compares what was recorded with what the engine said, `now`. Answers that ended because somebody left, or for lack
/// of time, are compared as far as they came.
record_comparison compare(const std::vector<recorded_prompt>& was, const std::vector<recorded_prompt>& now);

} // namespace troupe
