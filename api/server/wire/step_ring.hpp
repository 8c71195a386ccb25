// Holds the records of steps that a watcher has not fetched yet, bounded in number and in bytes. A slow watcher loses
// the oldest records; the engine never waits. Filled and emptied on any thread.
#pragma once

#include "runtime/scheduling/step_record.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

class step_ring {
public:
  using record_ptr = std::shared_ptr<const step_record>;

  explicit step_ring(std::size_t most) : most_(most) {}

  void add(record_ptr record) {
    const std::lock_guard lock(mutex_);
    bytes_ += bytes_of(*record);
    records_.push_back(std::move(record));
    while (records_.size() > most_ || (bytes_ > most_bytes && records_.size() > 1)) {
      drop_oldest();
      ++lost_;
    }
  }

  bool empty() const {
    const std::lock_guard lock(mutex_);
    return records_.empty();
  }

  struct taken {
    std::vector<record_ptr> records; // oldest first
    std::uint64_t lost = 0;          // since the last time
  };
  /// The oldest of about so many bytes; at least one, if there is any.
  taken take(std::size_t bytes = most_bytes) {
    const std::lock_guard lock(mutex_);
    taken result{{}, std::exchange(lost_, 0)};
    for (const auto before = bytes_; !records_.empty() && before - bytes_ < bytes;) {
      result.records.push_back(records_.front());
      drop_oldest();
    }
    return result;
  }

private:
  static constexpr std::size_t most_bytes = 8 << 20;

  static std::size_t bytes_of(const step_record& r) {
    return sizeof r + r.lanes.size() * sizeof(step_lane) + r.copies.size() * sizeof(std::int32_t) + r.remark.size();
  }
  void drop_oldest() {
    bytes_ -= bytes_of(*records_.front());
    records_.pop_front();
  }

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::deque<record_ptr> records_;
  std::size_t bytes_ = 0;
  std::uint64_t lost_ = 0;
};

} // namespace troupe
