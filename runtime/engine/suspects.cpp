#include "runtime/engine/suspects.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace troupe {

void suspects::failed(std::span<const request> in_it) {
  for (const auto which : in_it)
    returning_.insert_or_assign(which, in_it.size() == 1);
}

void suspects::back(request which, std::uint64_t tokens, bool ran) {
  const bool was_tried = trial_ == which;
  if (was_tried)
    trial_.reset();
  const auto found = returning_.find(which);
  if (found == returning_.end())
    return;
  auto& its = records_[which];
  if (tokens > its.tokens) {
    its = {.tokens = tokens, .failures = 1};
    got_on_ = true;
  } else {
    const bool alone = found->second;
    ++its.failures;
    its.alone += alone;
    its.prime = was_tried && (ran || alone);
    if (its.prime)
      failed_trial_ = which;
  }
  its.ran = ran;
  returning_.erase(found);
  settle();
}

void suspects::gone(request which) {
  if (trial_ == which)
    trial_.reset();
  if (failed_trial_ == which)
    failed_trial_.reset();
  if (culprit_ == which)
    culprit_.reset();
  records_.erase(which);
  std::erase(queue_, which);
  if (returning_.erase(which) > 0)
    settle();
}

void suspects::end_trial(request which, std::uint64_t tokens) {
  if (trial_ != which)
    return;
  trial_.reset();
  std::erase(queue_, which);
  if (tokens <= tokens_before_)
    return;
  got_on_ = true;
  records_.erase(which);
}

// Until all have come back, nobody knows the queue: who went on meanwhile would be in it as well, and run.
bool suspects::holds(request which) const {
  const auto known = records_.find(which);
  return std::ranges::find(queue_, which) != queue_.end() ||
    (awaits() && known != records_.end() && known->second.is_suspected());
}

std::optional<suspects::request> suspects::next(std::span<const request> waiting) const {
  if (awaits() || trial_ || queue_.empty())
    return std::nullopt;
  // One whose trial was paused runs: the others are not to wait for its end.
  const auto first = std::ranges::find_first_of(queue_, waiting);
  const auto which = first == queue_.end() ? queue_.front() : *first;
  if (records_.at(which).alone > 0 && !got_on_ && !got_on_before_) {
    const auto other = std::ranges::find_if(waiting, [this](request each) { return !holds(each); });
    if (other != waiting.end())
      return *other;
  }
  return which;
}

std::optional<suspects::request> suspects::take_culprit() { return std::exchange(culprit_, std::nullopt); }

// All that were in a failure have come back.
void suspects::settle() {
  if (!returning_.empty())
    return;
  const bool others_get_on = got_on_ || got_on_before_;
  if (const auto tried = std::exchange(failed_trial_, std::nullopt))
    if (const auto alone = records_.at(*tried).alone; alone >= (others_get_on ? 1 : most_alone))
      culprit_ = tried;
  got_on_before_ = std::exchange(got_on_, false) || (culprit_ && others_get_on);
  if (culprit_) {
    records_.erase(*culprit_);
    std::erase_if(records_, [](const auto& entry) { return entry.second.alone == 0; });
  }
  rebuild_queue();
}

// Takes those that were computed, if there are any: others only waited. One that failed alone has been tried, and waits
// until the others have.
void suspects::rebuild_queue() {
  const bool any_ran = std::ranges::any_of(
    records_, [](const auto& entry) { return entry.second.is_suspected() && entry.second.ran; });
  queue_.clear();
  for (const auto& [which, its] : records_)
    if (its.is_suspected() && (its.ran || !any_ran))
      queue_.push_back(which);
  std::ranges::sort(queue_, {}, [this](request which) {
    const auto& its = records_.at(which);
    return std::tuple(its.alone, !its.prime, ~which);
  });
}

} // namespace troupe
