// The requests that one connection has running: where their events queue up between the engine's threads and the
// connection's strand, and the rule for slow readers: at the high mark of that queue all of them are paused, at the low
// mark resumed. Owned by the connection and used on its strand alone; only the sinks that it makes run elsewhere.
#pragma once

#include "api/openai/service.hpp"
#include "api/server/metrics.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace troupe {

class request_set : public std::enable_shared_from_this<request_set> {
public:
  struct item {
    std::uint64_t key = 0;
    event what;
  };

  /// `high_mark` in bytes, roughly as they will be written.
  request_set(boost::asio::any_io_executor strand, service& engine, metrics& counted, std::size_t high_mark);

  /// Nothing happens after close(). `held` is let go when the request has ended in the engine. Where there is no memory
  /// to submit it, that is its only event.
  void submit(std::uint64_t key, generation request, std::shared_ptr<const void> held = nullptr);
  void cancel(std::uint64_t key);
  /// Cancels everything; no event is delivered afterwards. For the end of a connection.
  void close();
  /// Requests that have not ended.
  std::size_t size() const { return running_.size(); }

  /// Until there are events, or poke() was called. Throws where cancelled.
  boost::asio::awaitable<void> wait();
  void poke();

  /// What has arrived, in order.
  std::vector<item> take();
  /// What was taken is written: lets paused requests go on where the queue has drained.
  void settled();

private:
  struct queue;
  void arrived();

  boost::asio::any_io_executor strand_;
  service& engine_;
  metrics& counted_;
  std::size_t high_mark_;
  boost::asio::steady_timer wake_;
  std::shared_ptr<queue> queue_;
  std::map<std::uint64_t, request_handle> running_;
  bool paused_ = false;
  bool poked_ = false;
  bool closed_ = false;
};

} // namespace troupe
