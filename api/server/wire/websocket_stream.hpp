// The WebSocket protocol below websocket_session: the upgrade, whole messages and the closing handshake. Hides Beast's
// stream, which is slow to compile. Used only on the connection's strand.
#pragma once

#include "api/http/budgeted_body.hpp"
#include "api/http/byte_stream.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/beast/http/message.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

class websocket_stream {
public:
  /// Close codes of RFC 6455, section 7.4.1.
  enum class close_code : std::uint16_t {
    going_away = 1001,
    too_big = 1009,
    service_restart = 1012,
    try_again_later = 1013
  };

  struct message {
    held_text held;
    bool text = true; // not binary
  };

  explicit websocket_stream(byte_stream bytes);
  ~websocket_stream();
  websocket_stream(websocket_stream&&) noexcept;
  websocket_stream& operator=(websocket_stream&&) noexcept;

  boost::asio::any_io_executor get_executor();

  /// Accepts the upgrade that `head` requests; the response carries `id`. A peer that is silent for `idle_timeout` is
  /// disconnected. `on_peer_close` is called when the peer's close frame arrives, before the reads end. Returns false
  /// if the handshake fails.
  boost::asio::awaitable<bool> accept(const boost::beast::http::request<budgeted_body>& head, std::string id,
                                      std::chrono::milliseconds handshake_timeout,
                                      std::chrono::milliseconds idle_timeout, std::function<void()> on_peer_close);

  /// Reads one message of at most `max_bytes`, counted against `budget`, where `client` pays. Nothing at the end of the
  /// connection, or with a reason in pending_close() if the message is too large.
  boost::asio::awaitable<std::optional<message>> read(std::size_t max_bytes, byte_budget& budget,
                                                      const std::string& client);

  /// Writes one text message. Returns false if the connection is gone.
  boost::asio::awaitable<bool> write(std::string_view text);

  /// Sets the reason that close_handshake() sends.
  void set_pending_close(close_code why) { pending_close_ = why; }
  std::optional<close_code> pending_close() const { return pending_close_; }

  /// Sends the close frame and waits for the peer's, at most `limit`. Does nothing without a pending reason.
  boost::asio::awaitable<void> close_handshake(std::chrono::milliseconds limit, std::chrono::milliseconds idle_timeout);

  /// Closes the socket.
  void close();

private:
  struct impl;
  std::unique_ptr<impl> impl_;
  std::optional<close_code> pending_close_;
};

} // namespace troupe
