#include "api/http/byte_stream.hpp"

#include <boost/asio/ip/network_v6.hpp>

#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe {

namespace asio = boost::asio;

namespace {

/// The address of the other end; unspecified if there is none.
asio::ip::address address_of(const stream_socket& socket) {
  boost::system::error_code ec;
  const auto endpoint = socket.remote_endpoint(ec);
  const auto found = ec ? std::nullopt : tcp_endpoint(endpoint);
  if (!found)
    return {};
  const auto address = found->address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return address;
}

/// The user whose program is at the other end of a socket with a path; empty for other sockets.
std::string user_of(int socket) {
  sockaddr_storage own = {};
  socklen_t length = sizeof own;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0 || own.ss_family != AF_UNIX)
    return {};
  ucred who = {};
  socklen_t size = sizeof who;
  const bool known = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
  return known ? "user " + std::to_string(who.uid) : std::string();
}

} // namespace

std::optional<asio::ip::tcp::endpoint> tcp_endpoint(const asio::generic::stream_protocol::endpoint& endpoint) {
  const auto family = endpoint.protocol().family();
  asio::ip::tcp::endpoint result;
  if ((family != AF_INET && family != AF_INET6) || endpoint.size() > result.capacity())
    return std::nullopt;
  std::memcpy(result.data(), endpoint.data(), endpoint.size());
  result.resize(endpoint.size());
  return result;
}

void byte_stream::let_go() {
  boost::system::error_code ec;
  if (const auto socket = socket_.release(ec); !ec)
    ::close(socket);
}

byte_stream byte_stream::move_to(const executor_type& executor) {
  stream_socket moved(executor);
  const auto protocol = socket_.local_endpoint().protocol();
  moved.assign(protocol, socket_.release());
  byte_stream result(std::move(moved));
  result.tls_ = std::move(tls_);
  return result;
}

std::string byte_stream::peer() const {
  const auto address = address_of(socket_);
  if (address.is_v6())
    return asio::ip::network_v6(address.to_v6(), 64).canonical().to_string();
  return peer_address();
}

std::string byte_stream::peer_address() const {
  const auto address = address_of(socket_);
  if (address.is_unspecified())
    return client_ ? std::string() : user_of(const_cast<stream_socket&>(socket_).native_handle());
  return address.to_string();
}

bool byte_stream::is_reset() {
  pollfd state{socket_.native_handle(), 0, 0};
  return ::poll(&state, 1, 0) > 0;
}

bool byte_stream::send_at_once(std::string_view bytes) {
  if (tls_) {
    pollfd room{socket_.native_handle(), POLLOUT, 0}; // without it, a part of a record might be sent
    if (::poll(&room, 1, 0) <= 0)
      return true;
    return !tls_->write(bytes.data(), bytes.size()).ec;
  }
  const auto sent = ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

void byte_stream::cancel() {
  ++cancels_;
  if (client_)
    client_->cancel();
  boost::system::error_code ec;
  socket_.cancel(ec);
}

void byte_stream::shutdown_send() {
  if (tls_)
    tls_->say_end();
  boost::system::error_code ec;
  socket_.shutdown(stream_socket::shutdown_send, ec);
}

void byte_stream::break_off() {
  boost::system::error_code ec;
  socket_.shutdown(stream_socket::shutdown_both, ec);
}

void byte_stream::close() {
  ++cancels_;
  if (client_)
    client_->close();
  if (tls_) {
    tls_->say_end();
    tls_->let_go();
  }
  break_off();
  boost::system::error_code ec;
  socket_.close(ec);
}

} // namespace troupe
