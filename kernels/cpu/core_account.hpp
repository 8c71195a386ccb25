// The cores of this process, divided among the thread pools whose step is under way: engines that are busy at the same
// time do not have more threads at work than there are cores. Results never depend on it, as they do not on threads. Any
// thread.
#pragma once

#include <span>
#include <vector>

namespace troupe::kernels {

class thread_pool;

/// How many threads each may use: what it wants, or an equal part of what the others leave; at least one, and one alone
/// what it wants.
std::vector<int> share_cores(int cores, std::span<const int> wanted);

/// A step of the pool's, which must outlive it.
class core_claim {
public:
  /// `pool`: null: there is nothing to divide.
  explicit core_claim(thread_pool* pool);
  ~core_claim();
  core_claim(const core_claim&) = delete;
  core_claim& operator=(const core_claim&) = delete;

private:
  thread_pool* const pool_;
};

} // namespace troupe::kernels
