#include "kernels/cpu/thread_pool.hpp"

#include <algorithm>
#include <utility>

#include <sched.h>

namespace troupe::kernels {

namespace {

// About 40 ns each. A thread then yields as many times, then sleeps.
constexpr std::uint32_t spins_before_yield = 500;
constexpr std::uint32_t spins_before_sleep = 700;

} // namespace

int thread_pool::usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void stay_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores)
    CPU_SET(core, &set);
  if (!cores.empty())
    static_cast<void>(sched_setaffinity(0, sizeof set, &set));
}

thread_pool::thread_pool(int threads, const std::vector<int>& cores, bool counts_caller)
  : cores_(usable_cores()), caller_(counts_caller ? 1 : 0) {
  const int count = std::clamp(threads > 0 ? threads : cores_, 1, static_cast<int>(active_mask));
  ranges_ = std::vector<counter>(count);
  width_ = team_ = count;
  workers_.reserve(count - 1);
  try {
    for (int i = 1; i < count; ++i)
      workers_.emplace_back([this, i, cores] {
        static_cast<void>(pthread_setname_np(pthread_self(), "troupe.compute"));
        stay_on(cores);
        worker_loop(i);
      });
  } catch (...) { // the system has no more threads
    end_workers();
    throw;
  }
}

thread_pool::~thread_pool() { end_workers(); }

void thread_pool::end_workers() {
  stop_ = true;
  state_.fetch_add(number_step);
  state_.notify_all();
  team_.store(static_cast<int>(ranges_.size()) + 1); // another number than any before
  team_.notify_all();
  for (auto& worker : workers_)
    worker.join();
}

void thread_pool::pause(std::uint32_t spins) const {
  if (spins > spins_before_yield || awake() > cores_)
    std::this_thread::yield();
  else
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

void thread_pool::wake() {
  const bool first = awake_.fetch_add(1, std::memory_order_relaxed) == 0;
  awake_in_all_.fetch_add(first ? 1 + caller_ : 1, std::memory_order_relaxed);
}

void thread_pool::doze() {
  const bool last = awake_.fetch_sub(1, std::memory_order_relaxed) == 1;
  awake_in_all_.fetch_sub(last ? 1 + caller_ : 1, std::memory_order_relaxed);
}

void thread_pool::run(const job& next) {
  const int threads = std::min(width_.load(std::memory_order_relaxed), size());
  if (threads <= 1 || next.tasks <= 1) {
    for (std::size_t task = 0; task < next.tasks; ++task)
      next.call(next.context, task, 0);
    return;
  }
  job_ = next;
  job_.threads = threads;
  open_ranges(false);
  if (team_.load(std::memory_order_relaxed) != threads) {
    team_.store(threads, std::memory_order_relaxed);
    team_.notify_all();
  }
  // The job is closed and no worker is active: the word holds only its number.
  const auto number = state_.load(std::memory_order_relaxed) + number_step;
  state_.store(number | open_bit, std::memory_order_seq_cst);
  state_.notify_all();

  work(0);

  auto state = state_.fetch_and(~open_bit, std::memory_order_acq_rel) & ~open_bit;
  for (std::uint32_t spins = 0; (state & active_mask) != 0; ++spins) {
    if (spins < spins_before_sleep)
      pause(spins);
    else
      state_.wait(state, std::memory_order_acquire);
    state = state_.load(std::memory_order_acquire);
  }
  if (failed_) {
    failed_ = false;
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void thread_pool::open_ranges(bool empty) {
  for (int i = 0; i < job_.threads; ++i)
    ranges_[i].next.store(range_start(empty ? i + 1 : i), std::memory_order_relaxed);
}

void thread_pool::work(int thread) {
  try {
    for (int i = 0; i < job_.threads; ++i) {
      const int range = (thread + i) % job_.threads;
      auto& next = ranges_[range].next;
      const std::size_t end = range_start(range + 1);
      for (std::size_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < end;)
        job_.call(job_.context, task, thread);
    }
  } catch (...) {
    open_ranges(true);
    if (!failed_.exchange(true))
      failure_ = std::current_exception();
  }
}

void thread_pool::worker_loop(int thread) {
  std::uint32_t done = 0; // number of the last job that this worker has joined
  std::uint32_t spins = 0;
  wake();
  while (!stop_) {
    auto state = state_.load(std::memory_order_acquire);
    // The state was written behind the team.
    if (const int team = team_.load(std::memory_order_relaxed); thread >= team && !stop_) {
      doze();
      team_.wait(team, std::memory_order_acquire);
      wake();
      spins = 0;
      continue;
    }
    const bool fresh = (state & open_bit) && (state & ~(open_bit | active_mask)) != done;
    if (!fresh) {
      if (++spins < spins_before_sleep) {
        pause(spins);
      } else {
        doze();
        state_.wait(state, std::memory_order_acquire);
        wake();
      }
      continue;
    }
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel))
      continue;
    done = state & ~(open_bit | active_mask);
    work(thread);
    // The caller may be asleep, waiting for the last worker to leave.
    if (const auto before = state_.fetch_sub(1, std::memory_order_acq_rel);
        (before & active_mask) == 1 && !(before & open_bit))
      state_.notify_all();
    spins = 0;
  }
  doze();
}

} // namespace troupe::kernels
