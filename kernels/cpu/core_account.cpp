#include "kernels/cpu/core_account.hpp"

#include "kernels/cpu/thread_pool.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <numeric>

namespace troupe::kernels {

namespace {

/// The pools that are in a step, in the order in which these began.
struct busy_pools {
  std::mutex mutex;
  std::vector<thread_pool*> pools;

  void divide() const noexcept {
    static const int cores = thread_pool::usable_cores();
    if (pools.size() == 1)
      return pools.front()->use_at_most(pools.front()->size());
    try {
      std::vector<int> wanted;
      for (const auto* pool : pools)
        wanted.push_back(pool->size());
      const auto shares = share_cores(cores, wanted);
      for (std::size_t i = 0; i < pools.size(); ++i)
        pools[i]->use_at_most(shares[i]);
    } catch (const std::bad_alloc&) { // they stay as they are
    }
  }
};

// Never destroyed: engines in static storage may end after it.
busy_pools& all_busy() {
  static auto& all = *new busy_pools;
  return all;
}

} // namespace

std::vector<int> share_cores(int cores, std::span<const int> wanted) {
  std::vector<int> shares(wanted.begin(), wanted.end());
  if (wanted.size() < 2)
    return shares;
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return wanted[i]; });
  for (auto others = static_cast<int>(order.size()); const auto i : order) { // the most modest first
    shares[i] = std::max(1, std::min(wanted[i], cores / others));
    cores -= std::min(cores, shares[i]);
    others = std::max(1, others - 1);
  }
  return shares;
}

core_claim::core_claim(thread_pool* pool) : pool_(pool) {
  if (!pool_)
    return;
  auto& all = all_busy();
  const std::lock_guard lock(all.mutex);
  all.pools.push_back(pool_);
  all.divide();
}

core_claim::~core_claim() {
  if (!pool_)
    return;
  auto& all = all_busy();
  const std::lock_guard lock(all.mutex);
  std::erase(all.pools, pool_);
  pool_->use_at_most(pool_->size());
  all.divide();
}

} // namespace troupe::kernels
