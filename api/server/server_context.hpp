// What the connections of one server share. Internal to the server; connections refer to it from their strands.
#pragma once

#include "api/http/access.hpp"
#include "api/http/byte_budget.hpp"
#include "api/http/request_quota.hpp"
#include "api/http/worker_lane.hpp"
#include "api/server/http_server.hpp"
#include "api/server/metrics.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <map>
#include <mutex>

namespace troupe {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

/// An open connection, as far as stopping the server goes. All of it may be called from any thread.
class session {
public:
  virtual ~session() = default;
  /// Finish what runs, then close.
  virtual void drain() = 0;
  /// End what runs, telling the client so, then close.
  virtual void cut() = 0;
  /// Close now.
  virtual void abort() = 0;
};

struct server_context {
  server_context(service& engine, server_options options);

  service& engine;
  const server_options options;
  const std::shared_ptr<server_log> log; // never null
  metrics counted;
  request_quota keys;
  byte_budget bodies;

  // The members above must outlive the connections, which live in handlers of `io`.
  asio::io_context io;
  tcp::acceptor acceptor;
  asio::steady_timer grace;
  worker_lane brief, lengthy; // for requests of few and of many bytes
  worker_lane reports;        // for what asks the engine, and for tidying up
  std::uint16_t port = 0;
  known_hosts hosts;

  /// Where a request of so many bytes is parsed, so that it waits for none that takes much longer than itself.
  worker_lane& lane_for(std::size_t bytes) { return bytes <= options.brief_bytes ? brief : lengthy; }

  /// Something has taken memory: once nothing runs any more, what is free goes back to the system.
  void tidy_up_later();
  /// On the acceptor's strand, once the server is draining.
  void stop_tidying();

  /// Of a request that brings none: unique in this process, and likely among others.
  std::string next_request_id();

  void enter(std::shared_ptr<session> who);
  void leave(const session* who);
  std::vector<std::shared_ptr<session>> sessions() const;
  std::size_t session_count() const;
  std::atomic<bool> draining = false;
  std::atomic<int> turned_away = 0; // connections that are being told to come back

private:
  asio::awaitable<void> tidy_up();

  asio::steady_timer tidying_;
  std::atomic<bool> will_tidy_up_ = false;
  const std::string id_prefix_;
  std::atomic<std::uint64_t> last_id_ = 0;
  mutable std::mutex mutex_;
  std::map<const session*, std::weak_ptr<session>> sessions_;
};

} // namespace troupe
