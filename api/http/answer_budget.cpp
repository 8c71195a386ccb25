#include "api/http/answer_budget.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace troupe {

std::size_t answer_budget::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

answer_budget::account* answer_budget::slowest(const account& but, clock::time_point now) const {
  account* found = nullptr;
  auto lowest = static_cast<double>(slow_rate);
  for (auto* each : accounts_) {
    if (each == &but || each->lost_ || !each->since_ || each->counted() == 0)
      continue;
    const auto waited = each->waited_ + (now - *each->since_);
    const auto rate = static_cast<double>(each->written_) / std::chrono::duration<double>(waited).count();
    if (waited >= patience && rate < lowest) {
      lowest = rate;
      found = each;
    }
  }
  return found;
}

/// The largest account of the client that holds most, counting `with` bytes for the client of `but`. Null if that
/// client itself holds most.
answer_budget::account* answer_budget::largest_of_others(const account& but, std::size_t with) const {
  std::map<std::string_view, std::size_t> sums{{but.client_, with}};
  for (const auto* each : accounts_)
    if (each != &but)
      sums[each->client_] += each->counted();
  const auto most = std::ranges::max_element(sums, {}, [](const auto& each) { return each.second; });
  if (most->second <= sums.at(but.client_))
    return nullptr;
  account* found = nullptr;
  for (auto* each : accounts_)
    if (each->client_ == most->first && !each->lost_ && (!found || each->counted() > found->counted()))
      found = each;
  return found;
}

void answer_budget::evict(account& slow) {
  slow.lose_();
  slow.lost_ = true;
  taken_ -= slow.counted();
  slow.bytes_ = 0;
}

answer_budget::account::account(answer_budget& budget, std::function<void()> lose)
  : budget_(budget), lose_(std::move(lose)) {
  const std::lock_guard lock(budget_.mutex_);
  budget_.accounts_.insert(this);
}

answer_budget::account::~account() {
  release_all();
  const std::lock_guard lock(budget_.mutex_);
  budget_.accounts_.erase(this);
}

void answer_budget::account::speak_for(std::string client) {
  const std::lock_guard lock(budget_.mutex_);
  client_ = std::move(client);
}

bool answer_budget::account::add(std::size_t bytes, clock::time_point now) {
  const std::lock_guard lock(budget_.mutex_);
  if (lost_)
    return false;
  const auto before = counted();
  const auto after = bytes_ + bytes > free_bytes ? bytes_ + bytes - free_bytes : 0;
  while (budget_.taken_ - before + after > budget_.most_) {
    auto* slow = after > budget_.most_ ? nullptr : budget_.slowest(*this, now);
    if (!slow && !since_ && after <= budget_.most_)
      slow = budget_.largest_of_others(*this, after);
    if (!slow && !since_)
      return false;
    budget_.evict(slow ? *slow : *this); // itself if its own reader is what it waits for
    if (!slow)
      return false;
  }
  budget_.taken_ += after - before;
  bytes_ += bytes;
  return true;
}

void answer_budget::account::release(std::size_t bytes) {
  const std::lock_guard lock(budget_.mutex_);
  const auto before = counted();
  bytes_ -= std::min(bytes, bytes_);
  budget_.taken_ -= before - counted();
}

void answer_budget::account::release_all() {
  const std::lock_guard lock(budget_.mutex_);
  budget_.taken_ -= counted();
  bytes_ = written_ = 0;
  waited_ = {};
  since_.reset();
}

void answer_budget::account::waits(clock::time_point now) {
  const std::lock_guard lock(budget_.mutex_);
  since_ = now;
}

void answer_budget::account::wrote(std::size_t bytes, clock::time_point now) {
  const std::lock_guard lock(budget_.mutex_);
  if (since_)
    waited_ += now - *since_;
  since_.reset();
  written_ += bytes;
}

} // namespace troupe
