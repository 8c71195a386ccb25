// The records of steps that a watcher has not fetched yet. Bounded: of a watcher that is slow, the oldest are lost, and
// the engine waits for nobody. Filled and emptied on any thread.
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
    if (records_.size() >= most_) {
      records_.pop_front();
      ++lost_;
    }
    records_.push_back(std::move(record));
  }

  struct taken {
    std::vector<record_ptr> records; // oldest first
    std::uint64_t lost = 0;          // since the last time
  };
  taken take() {
    const std::lock_guard lock(mutex_);
    taken result{{records_.begin(), records_.end()}, std::exchange(lost_, 0)};
    records_.clear();
    return result;
  }

private:
  const std::size_t most_;
  std::mutex mutex_;
  std::deque<record_ptr> records_;
  std::uint64_t lost_ = 0;
};

} // namespace troupe
