// When the time of each request is over. One timer serves all of them, so that no ended request is kept by a timer of
// its own: the owner sets one to `due` and calls `armed`, and asks for the expired ones when it fires.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace troupe {

template <class Key>
class deadlines {
public:
  using time_point = std::chrono::steady_clock::time_point;

  void set(const Key& key, time_point when) {
    erase(key);
    const auto added = order_.emplace(when, key).first;
    try {
      by_key_.emplace(key, when);
    } catch (...) {
      order_.erase(added);
      throw;
    }
  }

  void erase(const Key& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end())
      return;
    order_.erase({found->second, key});
    by_key_.erase(found);
  }

  /// When the timer must fire, unless it will fire before.
  std::optional<time_point> due() const {
    if (order_.empty() || (armed_ && *armed_ <= order_.begin()->first))
      return std::nullopt;
    return order_.begin()->first;
  }
  void armed(time_point when) { armed_ = when; }
  /// The timer has fired.
  void fired(time_point now) {
    if (armed_ && *armed_ <= now)
      armed_.reset();
  }

  /// One whose time is over; to be erased.
  std::optional<Key> expired(time_point now) const {
    if (order_.empty() || order_.begin()->first > now)
      return std::nullopt;
    return order_.begin()->second;
  }

private:
  std::set<std::pair<time_point, Key>> order_;
  std::map<Key, time_point> by_key_;
  std::optional<time_point> armed_; // the timer's next shot
};

} // namespace troupe
