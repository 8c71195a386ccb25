#include "kernels/cpu/thread_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <numeric>
#include <stdexcept>
#include <string>

#include <sched.h>

using troupe::kernels::thread_pool;

namespace {

/// Waits until so many threads of all pools are awake.
bool settles_at(int threads) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (thread_pool::awake() != threads && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return thread_pool::awake() == threads;
}

} // namespace

TEST_CASE("parallel_for runs every task once, with any number of threads, job after job") {
  for (const int threads : {1, 2, 3, 8}) {
    thread_pool pool(threads);
    CHECK(pool.size() == threads);
    for (std::size_t tasks = 0; tasks < 200; ++tasks) {
      std::vector<int> done(tasks);
      std::atomic<bool> thread_in_range = true;
      pool.parallel_for(tasks, [&](std::size_t task, int thread) {
        ++done[task]; // not atomic: ThreadSanitizer checks that the caller may read it
        if (thread < 0 || thread >= threads)
          thread_in_range = false;
      });
      CHECK(std::accumulate(done.begin(), done.end(), std::size_t(0)) == tasks);
      CHECK(std::count(done.begin(), done.end(), 1) == static_cast<std::ptrdiff_t>(tasks));
      CHECK(thread_in_range);
    }
  }
}

TEST_CASE("jobs have as many threads as they may, whether that becomes fewer or more") {
  thread_pool pool(4);
  for (const int most : {4, 2, 1, 3, 4, 1, 9, 2}) {
    pool.use_at_most(most);
    for (int job = 0; job < 50; ++job) {
      std::vector<int> done(100);
      std::atomic<int> highest = 0;
      pool.parallel_for(done.size(), [&](std::size_t task, int thread) {
        ++done[task];
        for (int seen = highest; seen < thread && !highest.compare_exchange_weak(seen, thread);) {
        }
      });
      CHECK(std::ranges::count(done, 1) == 100);
      CHECK(highest < std::min(most, 4));
    }
  }
}

TEST_CASE("parallel_for rethrows an exception of a task, and the pool keeps working") {
  for (const int threads : {1, 3}) {
    thread_pool pool(threads);
    for (std::size_t bad = 0; bad < 50; ++bad) {
      CHECK_THROWS_WITH_AS(pool.parallel_for(50,
                                             [&](std::size_t task, int) {
                                               if (task >= bad)
                                                 throw std::runtime_error("task failed");
                                             }),
                           "task failed", std::runtime_error);
      std::atomic<int> done = 0;
      pool.parallel_for(10, [&](std::size_t, int) { ++done; });
      CHECK(done == 10);
    }
  }
}

TEST_CASE("a pool wakes its sleeping threads, and uses no CPU time while idle") {
  thread_pool pool(3);
  std::atomic<int> done = 0;
  for (int round = 0; round < 5; ++round) {
    pool.parallel_for(30, [&](std::size_t, int) { ++done; });
    CHECK(settles_at(0));
  }
  CHECK(done == 150);
  const auto before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(double(std::clock() - before) / CLOCKS_PER_SEC < 0.03); // CPU time of the whole process
}

TEST_CASE("a pool without jobs stops") { thread_pool pool(4); }

TEST_CASE("pools know how many threads of all pools are awake") {
  CHECK(settles_at(0));
  {
    thread_pool one(2), other(3);
    std::atomic<int> seen = 0;
    // Both workers of a pool run a task only once they are awake.
    one.parallel_for(2, [&](std::size_t, int) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
      while (seen.load() < 2 && std::chrono::steady_clock::now() < end) {
        if (thread_pool::awake() >= 2)
          ++seen;
        std::this_thread::yield();
      }
    });
    CHECK(seen >= 2);
    CHECK(settles_at(0)); // asleep, but not gone
  }
  CHECK(settles_at(0));
}

TEST_CASE("a pool's own threads stay on the cores that it is given") {
  cpu_set_t usable;
  REQUIRE(sched_getaffinity(0, sizeof usable, &usable) == 0);
  int core = 0;
  while (!CPU_ISSET(core, &usable))
    ++core;
  thread_pool pool(2, {core});
  std::atomic<int> arrived = 0, own = -1;
  pool.parallel_for(2, [&](std::size_t, int thread) {
    ++arrived;
    while (arrived < 2) // the other thread has the other task
      std::this_thread::yield();
    cpu_set_t set;
    if (thread == 1 && sched_getaffinity(0, sizeof set, &set) == 0)
      own = CPU_COUNT(&set) == 1 && CPU_ISSET(core, &set) ? core : -2;
  });
  CHECK(own == core);
  cpu_set_t after;
  REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&after, &usable)); // the caller goes where it likes
}
