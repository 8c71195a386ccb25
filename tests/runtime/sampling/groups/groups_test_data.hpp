// Shared by the tests of groups: the loop that drives a strategy over any model, and comparisons of hypotheses.
#pragma once

#include "runtime/sampling/group_strategy.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/techniques/tree_search/technique.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

namespace troupe::test {

/// The logits that follow a sequence.
using language_model = std::function<std::vector<float>(std::span<const token_id>)>;

/// Whether a token may follow a sequence.
using token_rule = std::function<bool(std::span<const token_id>, token_id)>;

/// The value of an answer, where a reward model gives it.
using answer_value = std::function<double(std::span<const token_id>)>;

/// Drives `strategy` to its end; returns its results. Checks what it promises to the scheduler on the way.
inline std::vector<hypothesis> drive(group_strategy& strategy, const language_model& model,
                                     const sampling_params& params, const std::vector<token_id>& prompt,
                                     const token_rule& may_follow = {}, const answer_value& value = {}) {
  sampling_scratch scratch;
  std::vector<std::vector<token_id>> running{prompt};
  for (int position = 0; !running.empty(); ++position) {
    const auto* search = search_of(params.techniques.find(tree_search_technique));
    REQUIRE(position < params.max_tokens * (search ? search->simulations : 1));
    std::vector<std::vector<float>> rows, masked;
    for (const auto& sequence : running) {
      rows.push_back(model(sequence));
      masked.push_back(rows.back());
      for (std::size_t i = 0; may_follow && i < rows.back().size(); ++i)
        if (!may_follow(sequence, static_cast<token_id>(i)))
          masked.back()[i] = -std::numeric_limits<float>::infinity();
    }
    const std::vector<std::span<const float>> logits(rows.begin(), rows.end());
    const std::vector<std::span<const float>> allowed(masked.begin(), masked.end());
    auto children = may_follow ? strategy.judge(logits, allowed, scratch) : strategy.judge(logits, scratch);
    for (auto answers = strategy.awaited(); !answers.empty(); answers = strategy.awaited()) {
      REQUIRE(value);
      std::vector<double> values;
      for (const auto& answer : answers)
        values.push_back(value(answer));
      children = strategy.go_on(values);
    }
    CHECK(children.size() <= static_cast<std::size_t>(params.width()));
    std::vector<std::vector<token_id>> next;
    for (const auto& child : children) {
      REQUIRE(child.parent < running.size());
      if (!child.anew.empty()) {
        CHECK(child.anew.back() == child.token);
        next.push_back(prompt);
        next.back().insert(next.back().end(), child.anew.begin(), child.anew.end());
        continue;
      }
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

/// Whether the sequences are transformers'. Neighbours whose scores are closer than the arithmetic may be swapped.
inline void check_sequences(json::value expected, const std::vector<hypothesis>& got, double closest) {
  std::vector<std::vector<token_id>> ids;
  std::vector<double> scores;
  for (auto sequence : json::array(expected)) {
    ids.push_back(list<token_id>(*json::find(sequence, "ids")));
    scores.push_back(double(*json::find(sequence, "score")));
  }
  REQUIRE(got.size() == ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].score == doctest::Approx(scores[i]).epsilon(closest));
    const bool near = (i > 0 && scores[i - 1] - scores[i] < closest) ||
      (i + 1 < ids.size() && scores[i] - scores[i + 1] < closest);
    if (!near)
      CHECK_MESSAGE(ids_of(got[i]) == ids[i], json_ids(ids_of(got[i])), " instead of ", json_ids(ids[i]));
  }
}

} // namespace troupe::test
