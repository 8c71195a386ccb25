// Threads that make masks of tokens while forward passes run. Jobs belong to lanes (a lane is a guide): those of one
// lane run one at a time and in order; lanes take turns, so that one slow guide delays no other. The threads give way
// to those that compute. Jobs may be posted from any thread and must not throw. The threads start with this object, not
// with the first job: there may be none to be had then, and one request must not cost all others the replica.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe {

class mask_workers {
public:
  /// As many threads as can be had, `threads` at most. With none, a job runs when it is posted, on that thread.
  explicit mask_workers(int threads);
  /// Waits for the jobs under way and drops the others.
  ~mask_workers();
  mask_workers(const mask_workers&) = delete;
  mask_workers& operator=(const mask_workers&) = delete;

  void post(const void* lane, std::function<void()> job);

private:
  struct lane_jobs {
    std::deque<std::function<void()>> waiting;
    bool taken = false; // by a thread, or in ready_
  };
  void work();

  std::mutex mutex_; // of what follows
  std::condition_variable changed_;
  std::map<const void*, lane_jobs> lanes_;
  std::deque<const void*> ready_; // lanes with jobs, none of which runs
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

} // namespace troupe
