// One connection's bytes, over a socket or a memory_client. Remembers how its input ended: a socket reports the end of
// file once, and asio would wait for ever for a second report. Used only on the connection's strand.
#pragma once

#include "api/http/memory_client.hpp"
#include "runtime/support/fault_injection.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/websocket/teardown.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// A socket of TCP, or of a path of this machine.
using stream_socket = boost::asio::generic::stream_protocol::socket;
using stream_acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

/// The TCP address that an endpoint is; nothing if it is another kind.
std::optional<boost::asio::ip::tcp::endpoint> tcp_endpoint(
  const boost::asio::generic::stream_protocol::endpoint& endpoint);

class byte_stream {
public:
  using executor_type = stream_socket::executor_type;

  explicit byte_stream(stream_socket socket) : socket_(std::move(socket)) {}
  explicit byte_stream(std::shared_ptr<memory_client> client)
    : socket_(client->get_executor()), client_(std::move(client)) {}

  executor_type get_executor() { return socket_.get_executor(); }

  /// Once a read has failed for any reason but cancel(), later reads fail with the same error.
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& into, Token&& token) {
    return boost::asio::async_compose<Token, void(boost::system::error_code, std::size_t)>(
      read_operation<Buffers>{*this, into}, token, socket_);
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    if (client_)
      return client_->async_write_some(from, std::forward<Token>(token));
    if (fault_injection::refuses("socket"))
      break_off();
    return socket_.async_write_some(from, std::forward<Token>(token));
  }

  /// The address that the connection comes from; of IPv6 the network, as one client has all of its addresses; "user ID" if
  /// it comes from a program of this machine by a path. Empty if it comes from nowhere.
  std::string peer() const;
  /// The address itself.
  std::string peer_address() const;

  bool is_socket() const { return !client_; }

  /// Whether the peer has closed the connection and said so, as by a reset; not if it only shut down its sending side.
  /// Only on a socket.
  bool is_reset();

  /// Sends a few bytes while no write is under way. False if the peer is gone. Only on a socket.
  bool send_at_once(std::string_view bytes);

  /// Gives the socket away; nothing may be read or written here afterwards.
  stream_socket release_socket() { return std::move(socket_); }

  /// Of the socket, which is open.
  int native_handle() { return socket_.native_handle(); }
  /// Closes the socket here alone: another process has it, too.
  void let_go();

  /// The connection for another executor; nothing may be pending here, nor be read or written afterwards. Only of a
  /// socket. Throws system_error.
  byte_stream move_to(const executor_type& executor);

  /// Ends pending reads and writes with operation_aborted.
  void cancel();
  void shutdown_send();
  void close();
  /// Breaks the connection off as if the network had failed: both ends see it.
  void break_off();

  // Beast closes the layer below a WebSocket through these.
  friend void beast_close_socket(byte_stream& stream) { stream.close(); }
  template <class Handler>
  friend void async_teardown(boost::beast::role_type role, byte_stream& stream, Handler&& handler) {
    if (stream.client_) {
      stream.close();
      boost::asio::post(stream.get_executor(),
                        boost::beast::bind_front_handler(std::forward<Handler>(handler), boost::system::error_code()));
    } else {
      boost::beast::websocket::async_teardown(role, stream.socket_, std::forward<Handler>(handler));
    }
  }

private:
  template <class Buffers>
  struct read_operation {
    byte_stream& stream;
    Buffers into;
    bool begun = false;

    template <class Self>
    void operator()(Self& self, boost::system::error_code ec = {}, std::size_t count = 0) {
      if (!std::exchange(begun, true)) {
        const auto buffers = into;
        if (stream.ended_)
          boost::asio::post(stream.get_executor(), std::move(self));
        else if (stream.client_)
          stream.client_->wait(std::move(self));
        else
          stream.socket_.async_read_some(buffers, std::move(self));
        return;
      }
      if (stream.client_ && !stream.ended_)
        count = stream.client_->read(into, ec);
      if (ec && ec != boost::asio::error::operation_aborted)
        stream.ended_ = ec;
      self.complete(stream.ended_ ? stream.ended_ : ec, count);
    }
  };

  stream_socket socket_;
  std::shared_ptr<memory_client> client_; // replaces the socket if not null
  boost::system::error_code ended_;       // how the input ended
};

} // namespace troupe
