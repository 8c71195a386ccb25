// Threads for work that takes a while, apart from those that serve connections, and a bound on what waits for them.
// Kinds of work that must not hold each other up get lanes of their own. Any thread.
#pragma once

#include "runtime/support/threads.hpp"
#include "runtime/support/error.hpp"

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
  /// `most`: pieces of work that wait or run at once; one more is refused.
  worker_lane(int threads, std::size_t most) : most_(most), pool_(available(std::max(1, threads))) {}

  /// Runs `f` on a thread of this lane; the awaiting coroutine goes on where it was, with f's result or exception. Not
  /// interrupted by cancellation: f may refer to what the coroutine owns. Throws failure(overloaded) where the lane is
  /// full.
  template <class F>
  boost::asio::awaitable<std::invoke_result_t<F>> run(F f) {
    namespace asio = boost::asio;
    using result = std::invoke_result_t<F>;
    const place mine(*this);
    auto work = [f = std::move(f)]() mutable -> asio::awaitable<result> { co_return f(); };
    co_return co_await asio::co_spawn(pool_, std::move(work),
                                      asio::bind_cancellation_slot(asio::cancellation_slot(), asio::use_awaitable));
  }

  /// Whether all that was begun has also gone on where it came from.
  bool idle() const { return taken_ == 0; }

  /// Waits for what has been started.
  void join() { pool_.join(); }

private:
  /// The pool would wait for ever for those that it has started where it cannot start all.
  static std::size_t available(int threads) {
    expect_threads(threads);
    return static_cast<std::size_t>(threads);
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
  std::atomic<std::size_t> taken_ = 0;
  boost::asio::thread_pool pool_;
};

} // namespace troupe
