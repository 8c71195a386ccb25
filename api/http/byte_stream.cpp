#include "api/http/byte_stream.hpp"

namespace troupe {

namespace asio = boost::asio;

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
