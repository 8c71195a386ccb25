// Decides whether swapping K/V to host memory pays: the cost of moving a block back, at rates measured on the device,
// against the cost of recomputing it, as measured by recent steps. Owned by the scheduler actor; single-threaded.
#pragma once

#include "runtime/scheduling/step.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace troupe {

/// Rates of moves between device and host memory in bytes per second, measured with blocks of this size. Zero: no
/// swapping.
struct swap_rates {
  std::size_t block_bytes = 0;
  double to_host = 0, to_device = 0;
};

class swap_policy {
public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit swap_policy(swap_rates rates = {}) : rates_(rates) {}

  /// Records that a plan was sent to the executor.
  void planned(const step_plan& plan, time_point now);

  /// Records that the tokens of a step have arrived; steps end in the order of their plans.
  void finished(std::uint64_t step, time_point now);

  /// No swapping before rates and a prefill have been measured.
  swap_decision decide() const;

  /// Mean seconds per prompt token, in steps that are mostly prefill. Attention makes tokens at the end of a long
  /// prompt cost more than this mean, so that swapping in pays slightly more often than decided here.
  std::optional<double> prefill_seconds() const;

private:
  struct step {
    std::uint64_t number;
    std::size_t rows;
    bool prefills; // most of its rows belong to prompts
    time_point sent;
  };

  swap_rates rates_;
  std::deque<step> in_flight_;
  time_point last_end_{};
  double seconds_ = 0, rows_ = 0; // of prefilling steps, decayed
};

} // namespace troupe
