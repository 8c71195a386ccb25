// State shared by the connections of one server. Internal to the server; used from the connections' strands.
#pragma once

#include "api/http/access.hpp"
#include "api/http/answer_budget.hpp"
#include "api/http/byte_budget.hpp"
#include "api/http/byte_stream.hpp"
#include "api/http/connection_table.hpp"
#include "api/http/key_ring.hpp"
#include "api/http/request_quota.hpp"
#include "api/http/token_rate.hpp"
#include "api/http/worker_lane.hpp"
#include "api/openai/answer_writer.hpp"
#include "api/openai/fields/output_fields.hpp"
#include "api/openai/responses/response_store.hpp"
#include "api/server/figures/metrics.hpp"
#include "api/server/hand_over.hpp"
#include "api/server/http_server.hpp"
#include "api/server/live_settings.hpp"
#include "api/server/request_table.hpp"
#include "api/server/resume/stream_table.hpp"
#include "api/server/served_models.hpp"

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

/// An open connection, as the stopping server sees it. Every method may be called from any thread.
class session {
public:
  virtual ~session() = default;
  /// Finishes running requests, then closes.
  virtual void drain() = 0;
  /// Ends running requests with an error, then closes.
  virtual void cut() = 0;
  /// Closes now.
  virtual void abort() = 0;
  /// Closes if it waits for a request.
  virtual void give_way() {}
};

class websocket_endpoint;

/// The WebSockets whose clients may come back, by their ids. Thread-safe.
class socket_table {
public:
  void add(const std::string& id, std::weak_ptr<websocket_endpoint> one) {
    const std::lock_guard lock(mutex_);
    by_id_[id] = std::move(one);
  }
  void remove(const std::string& id) {
    const std::lock_guard lock(mutex_);
    by_id_.erase(id);
  }
  /// Null: there is none.
  std::shared_ptr<websocket_endpoint> find(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second.lock();
  }

private:
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<websocket_endpoint>> by_id_;
};

struct server_context {
  server_context(service& engine, server_options options);

  service& engine;
  const server_options options;
  const std::shared_ptr<server_log> log; // never null
  const served_models models;
  settings_in_force live;
  metrics counted;
  key_ring keys;
  request_quota quotas;                                                     // of clients
  const std::shared_ptr<token_rate> rates = std::make_shared<token_rate>(); // of clients; shared with sinks
  request_quota watching; // places among those who watch the engine's steps
  byte_budget bodies;
  answer_budget answers;
  response_store responses;
  request_table requests;
  stream_table streams;
  socket_table sockets;
  std::atomic<bool> draining = false;
  std::atomic<bool> replaced = false; // another process accepts in this one's place
  std::atomic<int> watchers = 0;      // of the engine's steps
  std::atomic<int> turned_away = 0;   // connections that are being answered with 503

private:
  const std::string id_prefix_;
  std::atomic<std::uint64_t> last_id_ = 0;
  mutable std::mutex mutex_; // guards the following
  struct open_session {
    std::weak_ptr<session> of;
    bool late = false; // came while draining: what it asks is answered, but not waited for
  };
  std::map<const session*, open_session> sessions_;
  std::size_t late_sessions_ = 0;
  std::shared_ptr<const successor> next_;
  connection_table connections_, handshakes_;

public:
  // The members above must outlive the connections, which handlers of `io` own.
  asio::io_context io;
  stream_acceptor acceptor;
  asio::steady_timer grace;
  worker_lane brief, lengthy; // parse short and long requests
  worker_lane arduous;        // what may take seconds: files of models' variants
  worker_lane reports;        // asks the engine for statistics, and returns free memory
  std::uint16_t port = 0;
  std::string path;          // that is listened on; empty: an address
  asio::ip::address address; // that is listened on; unspecified for a path

  /// Who takes this server's place; null: nobody yet.
  std::shared_ptr<const successor> next() const;
  void set_next(successor who);

  /// The lane that parses a text: short requests do not wait behind long ones.
  worker_lane& lane_for(std::size_t bytes) { return bytes <= options.brief_bytes ? brief : lengthy; }

  /// Makes a request follow the server's policy for the key of this name, or refuses it; what it holds besides tokens
  /// counts among the bodies until its end. Returns what its choices are filtered by. Any thread.
  output_filter follow_policy(const std::string& key, const std::string& client, const served_model& model,
                              generation& to);
  /// Makes all generations of a job follow the policy, and its writer withhold what they are filtered by.
  void follow_policy(const std::string& key, const std::string& client, const served_model& model, generation_job& job);

  /// Room for so many sequences of a client, by the policy for the key of this name. Throws failure.
  std::shared_ptr<const void> acquire_quota(const std::string& key, const std::string& client, std::size_t sequences);

  /// Who asks, for all that is shared out among clients: the API key, or without keys the address, never a connection.
  std::string client_of(const key_ring::owner& caller, const byte_stream& bytes) const;

  /// A place among the few who may watch the engine's steps at once, until the last copy is gone. Throws failure.
  std::shared_ptr<const void> place_to_watch(const std::string& client);

  /// Returns free memory to the system once nothing runs. Call after a large allocation.
  void trim_memory_later();
  /// Keeps figures for the page until the server drains. On the acceptor's strand.
  asio::awaitable<void> keep_figures();
  /// On the acceptor's strand, once the server is draining: nothing waits for the next time.
  void stop_timers();

  /// An id for a request without one: unique in this process, and likely across processes.
  std::string next_request_id();

  /// Whether a connection from the address may be opened, if need be for an idle one, which is closed.
  connection_table::refusal make_room_for(const std::string& address);
  void add_session(const std::shared_ptr<session>& one, const std::string& address);
  void remove_session(const session* one);
  void set_idle(const session* one, bool idle);

  /// One more connection begins to speak TLS, until the last copy is gone. Where too many do, another one is closed.
  std::shared_ptr<const void> begin_handshake(const session* one, const std::string& address);
  std::vector<std::shared_ptr<session>> sessions() const;
  std::size_t session_count() const;
  /// Draining: stops accepting, and closes the connections that came since.
  void end_drain();

private:
  void hold_rows(const std::string& client, generation& of);
  asio::awaitable<void> trim_memory();
  asio::awaitable<void> wait_until_idle();

  asio::steady_timer trim_timer_, figures_timer_;
  std::atomic<bool> will_trim_ = false;
};

} // namespace troupe
