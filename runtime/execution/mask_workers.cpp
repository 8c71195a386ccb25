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
  const std::lock_guard hold(mutex_);
  auto& jobs = lanes_[lane];
  jobs.waiting.push_back(std::move(job));
  if (std::exchange(jobs.taken, true))
    return;
  ready_.push_back(lane);
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
    const auto* lane = ready_.front();
    ready_.pop_front();
    auto& jobs = lanes_.at(lane);
    {
      auto job = std::move(jobs.waiting.front());
      jobs.waiting.pop_front();
      hold.unlock();
      job();
      job = nullptr; // destroys what it holds without the lock
      hold.lock();
    }
    if (jobs.waiting.empty())
      lanes_.erase(lane);
    else
      ready_.push_back(lane);
  }
}

} // namespace troupe
