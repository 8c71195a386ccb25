#include "api/server/wire/websocket_stream.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/websocket.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;

namespace {

constexpr std::size_t read_at_first = 64, most_read_at_once = 64 << 10; // while it waits, it has room for the first

/// For a person.
const char* reason_of(websocket_stream::close_code why) {
  switch (why) {
    case websocket_stream::close_code::going_away: return "the server is stopping";
    case websocket_stream::close_code::too_big: return "the message is too big";
    case websocket_stream::close_code::service_restart:
      return "another process takes the server's place: connect again";
    case websocket_stream::close_code::try_again_later: return "the server has no memory for more";
  }
  return "";
}

} // namespace

struct websocket_stream::impl {
  // Without permessage-deflate, which would compile zlib in.
  websocket::stream<byte_stream, false> stream;
};

websocket_stream::websocket_stream(byte_stream bytes)
  : impl_(new impl{websocket::stream<byte_stream, false>(std::move(bytes))}) {}

websocket_stream::~websocket_stream() = default;
websocket_stream::websocket_stream(websocket_stream&&) noexcept = default;
websocket_stream& websocket_stream::operator=(websocket_stream&&) noexcept = default;

asio::any_io_executor websocket_stream::get_executor() { return impl_->stream.get_executor(); }

asio::awaitable<bool> websocket_stream::accept(const beast::http::request<budgeted_body>& head, std::string id,
                                               std::chrono::milliseconds handshake_timeout,
                                               std::chrono::milliseconds idle_timeout,
                                               std::function<void()> on_peer_close) {
  auto& stream = impl_->stream;
  stream.set_option(websocket::stream_base::timeout{handshake_timeout, idle_timeout, true});
  const auto protocols = head[beast::http::field::sec_websocket_protocol];
  const bool named = beast::http::token_list(protocols).exists("troupe"); // browsers want one of theirs confirmed
  stream.set_option(websocket::stream_base::decorator([id = std::move(id), named](websocket::response_type& response) {
    response.set(beast::http::field::server, "troupe");
    if (named)
      response.set(beast::http::field::sec_websocket_protocol, "troupe");
    response.set("X-Request-Id", id);
  }));
  stream.read_message_max(0); // read() has the limit
  stream.control_callback([closed = std::move(on_peer_close)](websocket::frame_type kind, beast::string_view) {
    // A read ends only once the peer has closed its side of the socket, too.
    if (kind == websocket::frame_type::close)
      closed();
  });
  boost::system::error_code ec;
  co_await stream.async_accept(head, asio::redirect_error(asio::use_awaitable, ec));
  if (ec)
    co_return false;
  stream.text(true);
  stream.auto_fragment(false);
  co_return true;
}

asio::awaitable<std::optional<websocket_stream::message>> websocket_stream::read(std::size_t max_bytes,
                                                                                 byte_budget& budget,
                                                                                 const std::string& client) {
  auto& stream = impl_->stream;
  held_text held{{}, byte_budget::share(budget, client)};
  auto& text = held.text;
  bool whole = false;
  while (!whole) {
    boost::system::error_code ec;
    const auto room = max_bytes + 1 - text.size();
    auto buffer = asio::dynamic_buffer(text);
    co_await stream.async_read_some(buffer, std::min(room, text.empty() ? read_at_first : most_read_at_once),
                                    asio::redirect_error(asio::use_awaitable, ec));
    if (ec)
      co_return std::nullopt;
    whole = stream.is_message_done();
    // A frame that announces too much is refused before it comes.
    const auto to_come = whole ? 0 : stream.read_size_hint(1);
    if (text.size() > max_bytes || (to_come > 1 && to_come > max_bytes - text.size())) {
      pending_close_ = close_code::too_big;
      co_return std::nullopt;
    }
    if (!held.count()) {
      pending_close_ = close_code::try_again_later;
      co_return std::nullopt;
    }
  }
  co_return message{std::move(held), stream.got_text()};
}

asio::awaitable<bool> websocket_stream::write(std::string_view text) {
  boost::system::error_code ec;
  co_await impl_->stream.async_write(asio::buffer(text), asio::redirect_error(asio::use_awaitable, ec));
  co_return !ec;
}

asio::awaitable<void> websocket_stream::close_handshake(std::chrono::milliseconds limit,
                                                        std::chrono::milliseconds idle_timeout) {
  if (!pending_close_)
    co_return;
  auto& stream = impl_->stream;
  stream.set_option(websocket::stream_base::timeout{limit, idle_timeout, true});
  boost::system::error_code ec;
  co_await stream.async_close({static_cast<websocket::close_code>(*pending_close_), reason_of(*pending_close_)},
                              asio::redirect_error(asio::use_awaitable, ec));
}

void websocket_stream::close() { impl_->stream.next_layer().close(); }

} // namespace troupe
