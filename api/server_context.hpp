// What the connections of one server share. Internal to the server; connections refer to it from their strands.
#pragma once

#include "api/access.hpp"
#include "api/http_server.hpp"
#include "api/metrics.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <atomic>
#include <map>
#include <mutex>
#include <type_traits>

namespace troupe {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

/// An open connection, as far as stopping the server goes. Both may be called from any thread.
class session {
public:
  virtual ~session() = default;
  /// Finish what runs, then close.
  virtual void drain() = 0;
  /// Close now.
  virtual void abort() = 0;
};

struct server_context {
  server_context(service& engine, server_options options);

  service& engine;
  const server_options options;
  metrics counted;

  // The members above must outlive the connections, which live in handlers of `io`.
  asio::io_context io;
  tcp::acceptor acceptor;
  asio::steady_timer grace;
  asio::thread_pool workers;
  std::uint16_t port = 0;
  known_hosts hosts;

  void enter(std::shared_ptr<session> who);
  void leave(const session* who);
  std::vector<std::shared_ptr<session>> sessions() const;
  std::size_t session_count() const;
  std::atomic<bool> draining = false;
  std::atomic<int> turned_away = 0; // connections that are being told to come back

private:
  mutable std::mutex mutex_;
  std::map<const session*, std::weak_ptr<session>> sessions_;
};

/// Runs `f` on a worker thread; the awaiting coroutine goes on where it was, with f's result or exception. Not
/// interrupted by cancellation.
template <class F>
asio::awaitable<std::invoke_result_t<F>> on_worker(server_context& context, F f) {
  using result = std::invoke_result_t<F>;
  auto work = [f = std::move(f)]() mutable -> asio::awaitable<result> { co_return f(); };
  co_return co_await asio::co_spawn(context.workers, std::move(work),
                                    asio::bind_cancellation_slot(asio::cancellation_slot(), asio::use_awaitable));
}

} // namespace troupe
