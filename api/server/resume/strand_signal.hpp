// Wakes one coroutine, which waits on its strand, from any thread. Shared, as who wakes it may outlive it.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <memory>
#include <utility>

namespace troupe {

class strand_signal : public std::enable_shared_from_this<strand_signal> {
public:
  explicit strand_signal(boost::asio::any_io_executor strand) : timer_(std::move(strand)) {}

  /// Any thread.
  void notify() {
    boost::asio::post(timer_.get_executor(), [weak = weak_from_this()] {
      if (const auto self = weak.lock())
        self->notify_here();
    });
  }

  // On the strand:
  void notify_here() {
    told_ = true;
    timer_.cancel();
  }

  /// Until it was notified since the last wait, or the time is over. Throws if the coroutine is cancelled.
  boost::asio::awaitable<void> wait(
    std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max()) {
    if (!std::exchange(told_, false)) {
      boost::system::error_code ec;
      timer_.expires_at(until);
      co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ec));
      told_ = false;
    }
  }

private:
  boost::asio::steady_timer timer_;
  bool told_ = false;
};

} // namespace troupe
