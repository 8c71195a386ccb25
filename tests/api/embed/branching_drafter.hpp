// Guesses that branch: one of their lines is often right, others hardly ever.
#pragma once

#include "runtime/techniques/speculation/drafter.hpp"
#include "tests/listener.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace troupe::testing {

/// Answers by prompt and number.
using known_answers = std::map<std::pair<std::vector<token_id>, std::uint32_t>, std::vector<token_id>>;

inline known_answers answers_of(std::span<const generation> work, std::span<const heard> heard_of) {
  known_answers answers;
  for (std::size_t i = 0; i < work.size(); ++i)
    for (const auto& [index, ids] : heard_of[i].ids)
      answers[{work[i].prompt, index}] = ids;
  return answers;
}

class branching_drafter final : public drafter {
public:
  /// `branched`: counts right guesses that do not stand behind the one before.
  branching_drafter(std::vector<token_id> answer, unsigned seed, std::shared_ptr<std::atomic<int>> branched)
    : answer_(std::move(answer)), rng_(seed), branched_(std::move(branched)) {}

  bool branches() const override { return true; }

  void append(std::span<const token_id> tokens) override {
    known_ += std::exchange(begun_, true) ? tokens.size() : 0; // first comes the prompt
  }

  void propose(std::size_t, std::vector<token_id>&) override {}

  void propose_tree(std::size_t most, std::size_t room, std::vector<token_id>& guesses,
                    std::vector<std::int32_t>& parents) override {
    std::vector<std::size_t> depths;
    while (guesses.size() < room) {
      const auto i = static_cast<std::int32_t>(guesses.size());
      const auto parent = rng_() % 2 == 0 ? i - 1 : static_cast<std::int32_t>(rng_() % (guesses.size() + 1)) - 1;
      const auto depth = parent < 0 ? 0 : depths[static_cast<std::size_t>(parent)] + 1;
      if (depth >= most)
        break;
      const bool right = rng_() % 4 > 0 && known_ + depth < answer_.size();
      guesses.push_back(right ? answer_[known_ + depth] : static_cast<token_id>(5 + rng_() % 20));
      parents.push_back(parent);
      depths.push_back(depth);
    }
    guesses_ = guesses;
    parents_ = parents;
  }

  void observe_tree(std::span<const token_id> choices) override {
    std::int32_t after = -1;
    for (std::size_t i = 0; i + 1 < choices.size(); ++i)
      if (parents_[i] == after && guesses_[i] == choices[static_cast<std::size_t>(after + 1)] && choices[i + 1] >= 0) {
        *branched_ += static_cast<std::int32_t>(i) != after + 1;
        after = static_cast<std::int32_t>(i);
      }
  }

private:
  std::vector<token_id> answer_;
  std::mt19937 rng_;
  std::shared_ptr<std::atomic<int>> branched_;
  bool begun_ = false;
  std::size_t known_ = 0;
  std::vector<token_id> guesses_;
  std::vector<std::int32_t> parents_;
};

inline drafter_factory branching_drafters(known_answers answers, std::shared_ptr<std::atomic<int>> branched) {
  return [answers = std::move(answers), branched](sequence_id id, std::span<const token_id> prompt) {
    const auto found = answers.find({{prompt.begin(), prompt.end()}, id.index});
    return std::make_unique<branching_drafter>(found == answers.end() ? std::vector<token_id>() : found->second,
                                               static_cast<unsigned>(id.request), branched);
  };
}

} // namespace troupe::testing
