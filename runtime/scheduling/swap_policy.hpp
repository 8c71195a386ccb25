// Whether parking K/V in host memory pays: what it costs to bring a block back, at rates measured on the device, against
// what it costs to compute it again, as the steps of late have shown. Owned by the scheduler actor; single-threaded.
#pragma once

#include "runtime/scheduling/step.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace troupe {

/// Moves between device and host memory, in bytes per second, measured with blocks of this size. Zero: there are none.
struct swap_rates {
  std::size_t block_bytes = 0;
  double to_host = 0, to_device = 0;
};

class swap_policy {
public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit swap_policy(swap_rates rates = {}) : rates_(rates) {}

  /// A plan is on its way to the executor.
  void planned(const step_plan& plan, time_point now);

  /// The tokens of a step have come; steps end in the order of their plans.
  void finished(std::uint64_t step, time_point now);

  /// Nothing is parked or restored before rates and a prefill have been measured.
  swap_decision decide() const;

  /// Of one prompt token, in steps that are mostly prefill. Attention makes those at the end of a long prompt dearer than
  /// this mean, so that restoring pays a little more often than is decided here.
  std::optional<double> prefill_seconds() const;

private:
  struct step {
    std::uint64_t number;
    std::size_t rows;
    bool prefills; // most of its rows are of prompts
    time_point sent;
  };

  swap_rates rates_;
  std::deque<step> under_way_;
  time_point last_end_{};
  double seconds_ = 0, rows_ = 0; // of prefilling steps, the older the less
};

} // namespace troupe
