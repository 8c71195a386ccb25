// The figures of the last hour, for a page that was opened just now: some of the metrics, every ten seconds. One per
// server. Thread-safe.
#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class figures_history {
public:
  static constexpr std::chrono::seconds span{3600};

  explicit figures_history(std::chrono::milliseconds every) : most_(1 + static_cast<std::size_t>(span / every)) {}

  /// Keeps what the page draws of `exposition` (the metrics' text), summed over replicas; the oldest makes room.
  void add(std::string_view exposition, std::chrono::system_clock::time_point at);

  /// {"now": seconds, "names": [...], "samples": [[seconds, value, ...], ...]}, oldest first; null: not there yet.
  /// Seconds are since 1970.
  std::string json(std::chrono::system_clock::time_point now) const;

private:
  struct sample {
    double at = 0;
    std::vector<double> values; // of names_; later ones are missing
  };

  std::size_t place_of(std::string_view name);

  const std::size_t most_;
  mutable std::mutex mutex_; // guards the following
  std::vector<std::string> names_;
  std::deque<sample> samples_;
};

} // namespace troupe
