// The compute threads of CPU backends that take turns. The thread that calls `parallel_for` takes part. The pool's own
// threads spin for some microseconds after a job, so that the next op of a step finds them awake, then sleep. Pools
// know how many threads of all pools are awake: where these are more than the cores, waiting ones yield instead of
// spinning. One thread at a time may call, and jobs do not nest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace troupe::kernels {

/// Keeps the calling thread on some cores, unless there are none. A refusal affects only speed.
void stay_on(const std::vector<int>& cores);

class thread_pool {
public:
  /// `threads` counts the caller: 1 makes no thread. 0: one per core that this process may use. The pool's own threads
  /// stay on `cores`, unless there are none. `counts_caller`: among those awake; not if the caller is a thread of
  /// another pool.
  explicit thread_pool(int threads, const std::vector<int>& cores = {}, bool counts_caller = true);
  ~thread_pool();

  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;

  /// Threads of all pools of this process that do not sleep, with those that call pools whose workers do not.
  static int awake() { return awake_in_all_.load(std::memory_order_relaxed); }

  /// Cores that this process may use.
  static int usable_cores();

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// How many of its threads take part in jobs that begin from now on. Any thread.
  void use_at_most(int threads) { width_.store(threads, std::memory_order_relaxed); }
  int may_use() const { return width_.load(std::memory_order_relaxed); }

  /// Calls body(task, thread) for every task in [0, tasks), with thread in [0, size()). Each thread starts with a range
  /// of neighbouring tasks, so that it reads memory in order, then helps with those of others. Returns when all are
  /// done. Rethrows the first exception of a body; tasks that have not begun by then are dropped.
  template <class Body>
  void parallel_for(std::size_t tasks, const Body& body) {
    run({[](const void* context, std::size_t task, int thread) { (*static_cast<const Body*>(context))(task, thread); },
         &body, tasks});
  }

private:
  struct job {
    void (*call)(const void* context, std::size_t task, int thread) = nullptr;
    const void* context = nullptr;
    std::size_t tasks = 0;
    int threads = 1; // that take part
  };

  /// A range's next task.
  struct alignas(64) counter {
    std::atomic<std::size_t> next = 0;
  };

  void run(const job& next);
  void work(int thread);
  void open_ranges(bool empty);
  /// The first task of range `index`, or the end of the one before.
  std::size_t range_start(int index) const { return job_.tasks * index / job_.threads; }
  void end_workers();
  void worker_loop(int thread);
  void pause(std::uint32_t spins) const;
  void wake();
  void doze();

  // The word that all threads watch: | job number | open | threads at work |. A worker joins a job only while it is
  // open. So the caller waits only for tasks that have begun, never for a worker that the system has not scheduled.
  static constexpr std::uint32_t open_bit = 1u << 11;
  static constexpr std::uint32_t active_mask = open_bit - 1;
  static constexpr std::uint32_t number_step = open_bit << 1;

  alignas(64) std::atomic<std::uint32_t> state_ = 0;
  std::vector<counter> ranges_; // one per thread
  alignas(64) job job_;
  std::atomic<int> width_ = 1; // threads that jobs may have
  std::atomic<int> team_ = 1;  // that take part in the last job: the others sleep until it changes
  std::atomic<bool> stop_ = false;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
  const int cores_;
  const int caller_;                                // what it counts as
  std::atomic<int> awake_ = 0;                      // workers that do not sleep
  inline static std::atomic<int> awake_in_all_ = 0; // of all pools, with the callers of those that have any
  std::vector<std::thread> workers_;
};

} // namespace troupe::kernels
