// One connection's bytes, over a socket, TLS over a socket, or a memory_client. Remembers how its input ended: a socket
// reports the end of file once, and asio would wait for ever for a second report. Used only on the connection's strand.
#pragma once

#include "api/http/memory_client.hpp"
#include "api/http/tls_link.hpp"
#include "runtime/support/fault_injection.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/websocket/teardown.hpp>

#include <array>
#include <cstdint>
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
    if (tls_)
      return try_until_done([into](byte_stream& own) { return own.read_by_tls(into); }, std::forward<Token>(token));
    return boost::asio::async_compose<Token, void(boost::system::error_code, std::size_t)>(
      read_operation<Buffers>{*this, into}, token, socket_);
  }

  /// With TLS, a write that was cancelled may have sent a part of what nothing else can follow.
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    if (client_)
      return client_->async_write_some(from, std::forward<Token>(token));
    if (fault_injection::refuses("socket"))
      break_off();
    if (tls_)
      return try_until_done([from](byte_stream& own) { return own.write_by_tls(from); }, std::forward<Token>(token));
    return socket_.async_write_some(from, std::forward<Token>(token));
  }

  /// From now on, TLS is spoken on the socket, by `who`; first of all, async_handshake() is to be called. Throws bad_alloc.
  void begin_tls(const tls_identity& who) { tls_ = std::make_unique<tls_link>(who, socket_.native_handle()); }
  /// For a client that has not begun to speak TLS.
  void leave_tls() { tls_.reset(); }
  bool has_tls() const { return tls_ != nullptr; }
  /// What OpenSSL found wrong; empty for nothing. Only with TLS.
  std::string_view tls_trouble() const { return tls_->trouble(); }

  /// Fails with wrong_protocol_type, having read nothing, if the client does not speak TLS.
  template <class Token>
  auto async_handshake(Token&& token) {
    return try_until_done([](byte_stream& own) { return own.tls_->shake_hands(); }, std::forward<Token>(token));
  }

  /// Tells the client by TLS that nothing more comes; shutdown_send() and close() do so, too, where that can be sent at once.
  template <class Token>
  auto async_say_end(Token&& token) {
    return try_until_done([](byte_stream& own) { return own.tls_->say_end(); }, std::forward<Token>(token));
  }

  /// The address that the connection comes from; of IPv6 the network, as one client has all of its addresses; "user ID" if
  /// it comes from a program of this machine by a path. Empty if it comes from nowhere.
  std::string peer() const;
  /// The address itself.
  std::string peer_address() const;

  bool is_socket() const { return !client_; }
  /// Whether another process can go on with the connection: not with TLS, whose keys stay here.
  bool is_movable() const { return !client_ && !tls_; }

  /// Whether the peer has closed the connection and said so, as by a reset; not if it only shut down its sending side.
  /// Only on a socket.
  bool is_reset();

  /// Sends a few bytes while no write is under way. False if the peer is gone. Only on a socket.
  bool send_at_once(std::string_view bytes);

  /// The descriptor of the socket, which must be open.
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
      if (stream.tls_)
        stream.tls_->say_end();
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

  /// Tries what TLS can do at once, waits for the socket and tries again.
  template <class Try>
  struct tls_operation {
    byte_stream& stream;
    Try attempt; // (byte_stream&) -> tls_link::outcome
    std::uint64_t cancels = stream.cancels_;
    bool begun = false;
    std::optional<tls_link::outcome> got = {};

    template <class Self>
    void operator()(Self& self, boost::system::error_code ec = {}) {
      const bool first = !std::exchange(begun, true);
      // Also one that came while nothing waited: the socket was ready, and this had not run yet.
      if (!ec && (cancels != stream.cancels_ || self.cancelled() != boost::asio::cancellation_type::none))
        ec = boost::asio::error::operation_aborted;
      if (!ec && !got) {
        const auto tried = attempt(stream);
        if (tried.waits)
          return stream.socket_.async_wait(*tried.waits, std::move(self));
        got = tried;
        if (first) // nothing completes within the call that begins it
          return boost::asio::post(stream.get_executor(), std::move(self));
      }
      self.complete(ec ? ec : got->ec, got ? got->count : 0);
    }
  };

  template <class Try, class Token>
  auto try_until_done(Try attempt, Token&& token) {
    return boost::asio::async_compose<Token, void(boost::system::error_code, std::size_t)>(
      tls_operation<Try>{*this, std::move(attempt)}, token, socket_);
  }

  template <class Buffers>
  tls_link::outcome read_by_tls(const Buffers& into) {
    if (ended_)
      return {0, ended_};
    tls_link::outcome got;
    for (auto one = boost::asio::buffer_sequence_begin(into); one != boost::asio::buffer_sequence_end(into); ++one)
      if (const boost::asio::mutable_buffer to = *one; to.size() > 0) {
        got = tls_->read(to.data(), to.size());
        break;
      }
    ended_ = got.ec;
    return got;
  }

  template <class Buffers>
  tls_link::outcome write_by_tls(const Buffers& from) {
    const auto begin = boost::asio::buffer_sequence_begin(from);
    if (begin == boost::asio::buffer_sequence_end(from))
      return {};
    if (const boost::asio::const_buffer first = *begin; first.size() >= tls_link::record_bytes)
      return tls_->write(first.data(), first.size());
    std::array<char, tls_link::record_bytes> together; // each write is a record, and a system call
    const auto bytes = boost::asio::buffer_copy(boost::asio::buffer(together), from);
    return bytes == 0 ? tls_link::outcome() : tls_->write(together.data(), bytes);
  }

  stream_socket socket_;
  std::shared_ptr<memory_client> client_; // replaces the socket if not null
  std::unique_ptr<tls_link> tls_;         // on the socket; null: none
  boost::system::error_code ended_;       // how the input ended
  std::uint64_t cancels_ = 0;             // calls of cancel() and close()
};

} // namespace troupe
