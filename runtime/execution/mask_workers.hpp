// Threads that make masks of tokens while forward passes run. Each job belongs to a lane, and a lane is a constraint. Jobs
// of one lane run one at a time and in order; lanes take turns, so that a slow one delays no other. The threads
// give way to those that compute. Any thread may post jobs; jobs must not throw. The threads start with this object
// rather than with the first job: if none could be had then, one request would cost all others the replica. They allocate
// nothing themselves: an exception would end the process there.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe {

class mask_workers {
public:
  /// Starts as many threads as can be had, `threads` at most. With none, a job runs when it is posted, on that thread.
  /// `elsewhere`: runs jobs in place of threads; of simulations.
  using runs_jobs = std::function<void(std::function<void()>)>;
  explicit mask_workers(int threads, runs_jobs elsewhere = {});
  /// Waits for the jobs under way and drops the others.
  ~mask_workers();
  mask_workers(const mask_workers&) = delete;
  mask_workers& operator=(const mask_workers&) = delete;

  /// Where there is no memory for the job it throws std::bad_alloc, and nothing has changed.
  void post(const void* lane, std::function<void()> job);

private:
  struct lane_jobs {
    const void* lane = nullptr;
    std::list<std::function<void()>> waiting;
  };
  void work();

  const runs_jobs elsewhere_;
  std::mutex mutex_; // of what follows
  std::condition_variable changed_;
  std::list<lane_jobs> ready_, running_; // lanes with jobs, of which none, or one, runs; few
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

} // namespace troupe
