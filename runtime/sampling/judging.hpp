// The questions to a judge (answer_judge) and its answers, for a search whose value is "model": answers go to it as texts
// and come back as values. Both are messages between whoever samples and whoever judges (actors/messages/judging.hpp).
#pragma once

#include "runtime/support/error.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// What answers go on from, in words.
struct judged_prompt {
  std::string text = {};       // without special tokens
  std::string messages = {};   // JSON: the list that a chat template was given; empty: it is no conversation
  bool continues_last = false; // the answer belongs to the last message
};

/// Answers to value. Its address identifies it while somebody waits for the verdict.
struct judge_order {
  std::shared_ptr<const judged_prompt> prompt;
  std::vector<std::string> answers;
};

using judge_order_ptr = std::shared_ptr<const judge_order>;

/// What has come of an order: one value for each answer, or why there are none.
struct verdict {
  judge_order_ptr order = {}; // null: of all orders that are open
  std::vector<double> values = {};
  std::optional<error> why = {};
};

/// How a sampler reaches whoever judges. Each order gets a verdict (step_sampler::settle) unless it is withdrawn.
struct judge_line {
  std::function<void(const judge_order_ptr&)> ask = {}; // empty: there is nobody
  std::function<void(const judge_order_ptr&)> withdraw = {};
};

} // namespace troupe
