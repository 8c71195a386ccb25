// Decides when a scheduler reports its load: after a step that changed it materially, otherwise now and then while
// anything changes, and not at all while nothing does. Owned by the scheduler actor; single-threaded.
#pragma once

#include "runtime/scheduling/cost/load_report.hpp"
#include "runtime/scheduling/step.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

class scheduler;

class load_reporter {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// `blocks`: of the pool.
  load_reporter(int replica, std::uint64_t life, std::int32_t blocks);

  /// A request was submitted to the scheduler, or refused by it.
  void received(std::uint64_t request) { received_.push_back(request); }

  /// What the block manager has left.
  void granted(const block_grant& grant);

  /// Call it when a step has ended, or a request.
  std::optional<load_report> due(scheduler& of, time_point now);

private:
  bool is_due(const load_report& now, time_point at) const;

  int replica_;
  std::uint64_t life_;
  std::int32_t blocks_, free_blocks_, cached_blocks_ = 0;
  std::vector<std::uint64_t> received_;
  load_report last_; // without what it had received
  time_point sent_{};
};

} // namespace troupe
