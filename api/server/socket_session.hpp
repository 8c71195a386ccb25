// What the server's WebSocket connections have in common: they read messages, submit requests and write what these
// yield, until the client leaves, the server stops, or a client reads too slowly. Derived classes know the messages.
// Runs within the coroutine of the HTTP connection that it was upgraded from, on the same strand.
#pragma once

#include "api/server/request_set.hpp"
#include "api/server/websocket_session.hpp"
#include "api/server/websocket_stream.hpp"

#include <boost/asio/steady_timer.hpp>

#include <deque>
#include <memory>
#include <string>

namespace troupe {

class socket_session : public websocket_endpoint, public std::enable_shared_from_this<socket_session> {
public:
  /// Sinks that outlive the connection must not count in an account whose server is gone.
  ~socket_session() override;

  void drain() override;
  void cut() override;
  void abort() override;
  asio::awaitable<void> run(const boost::beast::http::request<budgeted_body>& head, std::string id,
                            key_ring::owner caller, request_record::origin from) override;

protected:
  using messages = std::deque<std::string>;

  /// Messages up to this size are parsed on the strand, longer ones by a worker.
  static constexpr std::size_t parsed_in_place = 8 << 10;

  socket_session(server_context& context, byte_stream bytes);

  virtual asio::awaitable<void> handle(held_text message) = 0;
  virtual void refuse_binary() = 0;
  /// Ends what is being parsed.
  virtual void stop_parsing() = 0;
  /// The client leaves.
  virtual void client_leaves() {}
  /// What a request has yielded.
  virtual void add(const request_set::item& item, messages& out) = 0;
  /// Ends every request with an error.
  virtual void end_all(messages& out) = 0;
  /// Records the requests whose client has left.
  virtual asio::awaitable<void> end_left() = 0;
  /// Whether nothing runs or waits.
  virtual bool is_idle() const = 0;
  /// Around the writing of what has gathered.
  virtual void before_writing(messages&) {}
  virtual void after_writing() {}

  /// Writes ahead of what requests yield.
  void send(std::string message);

  server_context& context_;
  asio::any_io_executor strand_;
  const std::string peer_; // its address
  websocket_stream stream_;
  std::shared_ptr<answer_budget::account> account_;
  std::shared_ptr<request_set> requests_; // both from run() on
  std::string id_;                        // of the upgrade request
  key_ring::owner caller_;
  request_record::origin from_;
  request_quota quota_;
  std::uint64_t next_key_ = 0;
  bool gone_ = false; // nothing more is read or written
  bool draining_ = false;
  bool cut_ = false; // nothing more is submitted

private:
  void leave();
  asio::awaitable<void> read_messages();
  asio::awaitable<void> write_messages();

  asio::steady_timer room_; // cancelled when replies_ have been written
  messages replies_;
  std::size_t reply_bytes_ = 0;
  bool reader_done_ = false;
};

} // namespace troupe
