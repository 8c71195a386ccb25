// The cores of this process, divided among the thread pools that compute now (a step, a draft's guesses, a load): engines
// that are busy at the same time do not have more threads at work than there are cores. Results never depend on it, as they do not on threads. Any
// thread.
#pragma once

#include <span>
#include <vector>

namespace troupe::kernels {

class backend;
class thread_pool;

/// How many threads each may use: what it wants, or an equal part of what the others leave; at least one, and one alone
/// what it wants. `taken`: cores that others have, who can do with no fewer.
std::vector<int> share_cores(int cores, std::span<const int> wanted, int taken = 0);

/// Work of the pool's, which must outlive it.
class core_claim {
public:
  /// `pool`: null: there is nothing to divide. `taken`: threads that compute, and cannot be fewer: ranks wait for each
  /// other.
  explicit core_claim(thread_pool* pool, int taken = 0);
  ~core_claim();
  core_claim(const core_claim&) = delete;
  core_claim& operator=(const core_claim&) = delete;

private:
  thread_pool* pool_;
  const int taken_;
};

/// Work of the backend's threads; nothing of a backend that is not a CPU's. Each rank counts as one thread.
core_claim claim_cores(const backend& of);

} // namespace troupe::kernels
