#include "kernels/cpu/core_account.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <numeric>

namespace troupe::kernels {

namespace {

/// The pools that compute, in the order in which they began.
struct busy_pools {
  std::mutex mutex;
  std::vector<thread_pool*> pools;
  int taken = 0; // by others

  void divide() const noexcept {
    static const int cores = thread_pool::usable_cores();
    if (pools.size() == 1 && taken == 0)
      return pools.front()->use_at_most(pools.front()->size());
    try {
      std::vector<int> wanted;
      for (const auto* pool : pools)
        wanted.push_back(pool->size());
      const auto shares = share_cores(cores, wanted, taken);
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

std::vector<int> share_cores(int cores, std::span<const int> wanted, int taken) {
  std::vector<int> shares(wanted.begin(), wanted.end());
  if (wanted.size() < 2 && taken == 0)
    return shares;
  cores -= std::min(cores, taken);
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

core_claim::core_claim(thread_pool* pool, int taken) : pool_(pool), taken_(taken) {
  if (!pool_ && taken_ == 0)
    return;
  auto& all = all_busy();
  const std::lock_guard lock(all.mutex);
  if (std::ranges::find(all.pools, pool_) != all.pools.end())
    pool_ = nullptr; // it is part of work that has a claim
  if (pool_)
    all.pools.push_back(pool_);
  all.taken += taken_;
  all.divide();
}

core_claim::~core_claim() {
  if (!pool_ && taken_ == 0)
    return;
  auto& all = all_busy();
  const std::lock_guard lock(all.mutex);
  if (pool_) {
    std::erase(all.pools, pool_);
    pool_->use_at_most(pool_->size());
  }
  all.taken -= taken_;
  all.divide();
}

core_claim claim_cores(const backend& of) {
  const auto* own = of.storable();
  if (!own || own->shards() > 1)
    return core_claim(nullptr, own ? own->shards() : 0);
  return core_claim(&own->pool());
}

} // namespace troupe::kernels
