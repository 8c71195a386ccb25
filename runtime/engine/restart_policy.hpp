// Limits how often a failed worker group is restarted, and how soon: what made it fail may take a while to pass. Owned
// by the engine actor; single-threaded.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>

namespace troupe {

class restart_policy {
public:
  using clock = std::chrono::steady_clock;

  explicit restart_policy(std::size_t restarts = 3, std::chrono::seconds within = std::chrono::seconds(60))
    : restarts_(restarts), within_(within) {}

  /// Whether to restart after a failure at `now`, and how long to wait before: not at all, then ever longer. Counts the
  /// restart.
  std::optional<std::chrono::milliseconds> restart(clock::time_point now) {
    while (!recent_.empty() && now - recent_.front() >= within_)
      recent_.pop_front();
    if (recent_.size() >= restarts_)
      return std::nullopt;
    recent_.push_back(now);
    const auto before = static_cast<int>(std::min(recent_.size() - 1, most_steps));
    return before == 0 ? std::chrono::milliseconds(0) : first_wait * (1 << 3 * (before - 1));
  }

  std::size_t restarts() const { return restarts_; }
  std::chrono::seconds within() const { return within_; }

private:
  static constexpr std::chrono::milliseconds first_wait{500}; // eight times as long each time
  static constexpr std::size_t most_steps = 4;

  std::size_t restarts_;
  std::chrono::seconds within_;
  std::deque<clock::time_point> recent_;
};

} // namespace troupe
