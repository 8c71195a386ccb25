#include "api/byte_stream.hpp"

#include <poll.h>

namespace troupe {

namespace asio = boost::asio;

bool byte_stream::peer_has_left() {
  if (client_)
    return client_->has_hung_up();
  // Linux tells a reset by POLLERR or POLLHUP, a FIN by POLLRDHUP: both without regard to unread bytes.
  pollfd watched{socket_.native_handle(), POLLRDHUP, 0};
  return ::poll(&watched, 1, 0) > 0;
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
