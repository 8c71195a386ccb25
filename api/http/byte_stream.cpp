#include "api/http/byte_stream.hpp"

#include <boost/asio/ip/network_v6.hpp>

namespace troupe {

namespace asio = boost::asio;

std::string byte_stream::peer() const {
  boost::system::error_code ec;
  const auto end = socket_.remote_endpoint(ec);
  if (ec)
    return {};
  const auto address = end.address();
  if (!address.is_v6())
    return address.to_string();
  if (address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  return asio::ip::network_v6(address.to_v6(), 64).canonical().to_string();
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
