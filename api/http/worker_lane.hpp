// A thread pool with a bounded queue for work too slow for the connections' threads. Kinds of work that must not delay
// each other get separate lanes. Thread-safe.
#pragma once

#include "runtime/support/error.hpp"
#include "runtime/support/threads.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace troupe {

class worker_lane {
public:
  /// `most` is the number of tasks that may wait or run at once; further ones are refused. `gives_way`: to threads that
  /// compute.
  worker_lane(int threads, std::size_t most, bool gives_way = false)
    : most_(most), gives_way_(gives_way), pool_(started(std::max(1, threads))) {}

  /// Runs `f` on a thread of this lane; the awaiting coroutine resumes on its own executor with f's result or
  /// exception. Cancellation does not interrupt it, so f may refer to the coroutine's locals. Throws
  /// failure(overloaded) if the lane is full.
  template <class F>
  boost::asio::awaitable<std::invoke_result_t<F>> run(F f) {
    namespace asio = boost::asio;
    using result = std::invoke_result_t<F>;
    const place mine(*this);
    auto work = [f = std::move(f), gives_way = gives_way_]() mutable -> asio::awaitable<result> {
      if (gives_way)
        give_way();
      co_return f();
    };
    co_return co_await asio::co_spawn(pool_, std::move(work),
                                      asio::bind_cancellation_slot(asio::cancellation_slot(), asio::use_awaitable));
  }

  /// Whether every task has finished and its coroutine has resumed.
  bool idle() const { return taken_ == 0; }

  /// Waits for the started tasks.
  void join() { pool_.join(); }

private:
  /// Asio's pool would wait for ever for the threads it has started if it cannot start all.
  static boost::asio::thread_pool started(int threads) {
    expect_threads(threads);
    const name_for_threads named("lane");
    return boost::asio::thread_pool(static_cast<std::size_t>(threads));
  }

  struct place {
    explicit place(worker_lane& in) : lane(in) {
      if (lane.taken_.fetch_add(1) < lane.most_)
        return;
      --lane.taken_;
      throw failure(errc::overloaded,
                    "too many requests are being read; at most " + std::to_string(lane.most_) + " may wait for that");
    }
    ~place() { --lane.taken_; }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    worker_lane& lane;
  };

  const std::size_t most_;
  const bool gives_way_;
  std::atomic<std::size_t> taken_ = 0;
  boost::asio::thread_pool pool_;
};

} // namespace troupe
