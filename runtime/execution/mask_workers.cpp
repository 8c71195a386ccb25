#include "runtime/execution/mask_workers.hpp"

#include "runtime/support/machine/threads.hpp"

#include <exception>
#include <utility>

namespace troupe {

mask_workers::mask_workers(int threads, runs_jobs elsewhere) : elsewhere_(std::move(elsewhere)) {
  const std::lock_guard hold(mutex_);
  threads_.reserve(static_cast<std::size_t>(threads));
  try {
    while (static_cast<int>(threads_.size()) < threads)
      threads_.emplace_back([this] { work(); });
  } catch (const std::exception&) {
    // Threads that run do all of it.
  }
}

mask_workers::~mask_workers() {
  {
    const std::lock_guard hold(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (auto& t : threads_)
    t.join();
}

void mask_workers::post(const void* lane, std::function<void()> job) {
  if (elsewhere_)
    return elsewhere_(std::move(job));
  if (threads_.empty())
    return job();
  std::list<std::function<void()>> one;
  one.push_back(std::move(job));
  std::list<lane_jobs> its;
  its.push_back({lane, {}});
  const std::lock_guard hold(mutex_);
  for (auto* lanes : {&running_, &ready_})
    for (auto& each : *lanes)
      if (each.lane == lane)
        return each.waiting.splice(each.waiting.end(), one);
  its.front().waiting.splice(its.front().waiting.end(), one);
  ready_.splice(ready_.end(), its);
  changed_.notify_one();
}

void mask_workers::work() {
  name_thread("masks");
  give_way();
  std::unique_lock hold(mutex_);
  for (;;) {
    changed_.wait(hold, [this] { return stopping_ || !ready_.empty(); });
    if (stopping_)
      return;
    const auto its = ready_.begin();
    running_.splice(running_.end(), ready_, its);
    {
      auto job = std::move(its->waiting.front());
      its->waiting.pop_front();
      hold.unlock();
      job();
      job = nullptr; // destroys what it holds without the lock
      hold.lock();
    }
    if (its->waiting.empty())
      running_.erase(its);
    else
      ready_.splice(ready_.end(), running_, its);
  }
}

} // namespace troupe
