// Tables of logits as language models for the tests of groups, and the loop that drives a strategy over any model.
#pragma once

#include "runtime/sampling/group_strategy.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace troupe::test {

/// The logits that follow a sequence.
using language_model = std::function<std::vector<float>(std::span<const token_id>)>;

/// Drives `strategy` to its end; returns its results. Checks what it promises to the scheduler on the way.
inline std::vector<hypothesis> drive(group_strategy& strategy, const language_model& model,
                                     const sampling_params& params, const std::vector<token_id>& prompt) {
  sampling_scratch scratch;
  std::vector<std::vector<token_id>> running{prompt};
  for (int position = 0; !running.empty(); ++position) {
    REQUIRE(position < params.max_tokens);
    std::vector<std::vector<float>> rows;
    for (const auto& sequence : running)
      rows.push_back(model(sequence));
    const std::vector<std::span<const float>> logits(rows.begin(), rows.end());
    const auto children = strategy.judge(logits, scratch);
    CHECK(children.size() <= static_cast<std::size_t>(params.width()));
    std::vector<std::vector<token_id>> next;
    for (const auto& child : children) {
      REQUIRE(child.parent < running.size());
      next.push_back(running[child.parent]);
      next.back().push_back(child.token);
    }
    running = std::move(next);
  }
  return strategy.results();
}

inline std::vector<token_id> ids_of(const hypothesis& one) {
  std::vector<token_id> ids;
  for (const auto& token : one.tokens)
    ids.push_back(token.id);
  return ids;
}

} // namespace troupe::test
