// Limits how often a failed worker group is restarted. Owned by the engine actor; single-threaded.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>

namespace troupe {

class restart_policy {
public:
  using clock = std::chrono::steady_clock;

  explicit restart_policy(std::size_t restarts = 3, std::chrono::seconds within = std::chrono::seconds(60))
    : restarts_(restarts), within_(within) {}

  /// Whether to restart after a failure at `now`; counts the restart if so.
  bool restart(clock::time_point now) {
    while (!recent_.empty() && now - recent_.front() >= within_)
      recent_.pop_front();
    if (recent_.size() >= restarts_)
      return false;
    recent_.push_back(now);
    return true;
  }

  std::size_t restarts() const { return restarts_; }
  std::chrono::seconds within() const { return within_; }

private:
  std::size_t restarts_;
  std::chrono::seconds within_;
  std::deque<clock::time_point> recent_;
};

} // namespace troupe
