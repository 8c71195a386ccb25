// The questions to a reward model and its answers, for a search whose value is "model": answers go to it as texts
// and come back as values. The asker keeps the outcome and sees when it is known. The reward model gets the order and
// settles it once; an order that is destroyed unsettled has failed, so nobody waits for ever. Any thread.
#pragma once

#include "runtime/support/error.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// What answers go on from, in words.
struct judged_prompt {
  std::string text = {};       // without special tokens
  std::string messages = {};   // JSON: the list that a chat template was given; empty: it is no conversation
  bool continues_last = false; // the answer belongs to the last message
};

class judged_values {
public:
  bool known() const { return known_.load(std::memory_order_acquire); }

  // Once they are known:
  const std::vector<double>& values() const { return values_; } // one for each answer
  const std::optional<error>& why() const { return why_; }      // there are none

private:
  friend class judge_order;

  std::vector<double> values_;
  std::optional<error> why_ = error{errc::unavailable, "the reward model has stopped", "search"};
  std::atomic<bool> known_ = false;
};

class judge_order {
public:
  /// `told` is called once the outcome is known, on any thread. `stop`: nobody wants it any more.
  judge_order(std::shared_ptr<const judged_prompt> prompt, std::vector<std::string> answers, std::stop_token stop,
              std::function<void()> told)
    : prompt_(std::move(prompt)), answers_(std::move(answers)), stop_(std::move(stop)), told_(std::move(told)) {}
  ~judge_order() { settle(); }
  judge_order(const judge_order&) = delete;
  judge_order& operator=(const judge_order&) = delete;

  const judged_prompt& prompt() const { return *prompt_; }
  const std::vector<std::string>& answers() const { return answers_; }
  const std::stop_token& stop() const { return stop_; }
  std::shared_ptr<const judged_values> outcome() const { return outcome_; }

  // The first one counts.
  void answer(std::vector<double> values) {
    if (outcome_->known())
      return;
    outcome_->values_ = std::move(values);
    outcome_->why_.reset();
    settle();
  }
  void fail(error why) {
    if (outcome_->known())
      return;
    outcome_->why_ = std::move(why);
    settle();
  }

private:
  void settle() noexcept {
    if (outcome_->known_.exchange(true, std::memory_order_release))
      return;
    try {
      told_();
    } catch (...) { // there is no memory for a message
    }
  }

  std::shared_ptr<const judged_prompt> prompt_;
  std::vector<std::string> answers_;
  std::stop_token stop_;
  std::function<void()> told_;
  std::shared_ptr<judged_values> outcome_ = std::make_shared<judged_values>();
};

/// Takes an order to who judges.
using judge_answers = std::function<void(std::shared_ptr<judge_order>)>;

} // namespace troupe
