#include "api/http/byte_stream.hpp"

#include <boost/asio/ip/network_v6.hpp>

#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

namespace troupe {

namespace asio = boost::asio;

namespace {

/// The address of the other end; unspecified if there is none.
asio::ip::address address_of(const asio::ip::tcp::socket& socket) {
  boost::system::error_code ec;
  const auto address = socket.remote_endpoint(ec).address();
  if (!ec && address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return ec ? asio::ip::address() : address;
}

} // namespace

std::string byte_stream::peer() const {
  const auto address = address_of(socket_);
  if (address.is_v6())
    return asio::ip::network_v6(address.to_v6(), 64).canonical().to_string();
  return peer_address();
}

std::string byte_stream::peer_address() const {
  const auto address = address_of(socket_);
  return address.is_unspecified() ? std::string() : address.to_string();
}

bool byte_stream::is_reset() {
  pollfd state{socket_.native_handle(), 0, 0};
  return ::poll(&state, 1, 0) > 0;
}

bool byte_stream::send_at_once(std::string_view bytes) {
  const auto sent = ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

void byte_stream::cancel() {
  if (client_)
    client_->cancel();
  boost::system::error_code ec;
  socket_.cancel(ec);
}

void byte_stream::shutdown_send() {
  boost::system::error_code ec;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
}

void byte_stream::close() {
  if (client_)
    client_->close();
  boost::system::error_code ec;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ec);
  socket_.close(ec);
}

} // namespace troupe
