#include "api/server/figures/request_times.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void request_times::loads(bool now) {
  const std::lock_guard lock(mutex_);
  if (now == loads_since_.has_value())
    return;
  if (now)
    loads_since_ = clock::now();
  else
    loaded_ += clock::now() - *std::exchange(loads_since_, std::nullopt);
}

void request_times::submitted(std::shared_ptr<const request_ledger> its) {
  const std::lock_guard lock(mutex_);
  if (its && !ended_)
    running_.push_back(std::move(its));
}

void request_times::end() {
  const std::lock_guard lock(mutex_);
  if (ended_)
    return;
  ended_ = seen_at(clock::now());
  ended_->state = "ended";
  running_.clear();
}

request_times::look request_times::seen() const {
  const std::lock_guard lock(mutex_);
  return ended_ ? *ended_ : seen_at(clock::now());
}

request_times::look request_times::seen_at(clock::time_point now) const {
  look result;
  result.total_ms = milliseconds(now - begun_);
  result.spent[wait_cause::load] = milliseconds(loaded_ + (loads_since_ ? now - *loads_since_ : clock::duration()));
  // The one that ends last decides when the answer is whole.
  double latest = -1;
  request_ledger::look last;
  double before = 0; // it was submitted
  for (const auto& one : running_) {
    const auto its = one->seen(now);
    const auto from = milliseconds(one->begun() - begun_), until = from + its.parts.total();
    result.tokens += its.tokens;
    if (until > latest || (last.ended && !its.ended))
      latest = until, last = its, before = from;
  }
  result.submitted = latest >= 0;
  if (!result.submitted) {
    result.state = name_of(loads_since_ ? wait_cause::load : wait_cause::parse);
    result.spent[wait_cause::parse] = std::max(0.0, result.total_ms - result.spent[wait_cause::load]);
    return result;
  }
  for (std::size_t i = 0; i < wait_causes; ++i)
    result.spent.ms[i] += last.parts.ms[i];
  result.spent[wait_cause::parse] += std::max(0.0, before - result.spent[wait_cause::load]);
  result.spent[wait_cause::write] = std::max(0.0, result.total_ms - result.spent.total());
  result.state = name_of(last.ended ? wait_cause::write : last.state.what);
  return result;
}

} // namespace troupe
