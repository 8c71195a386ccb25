#include "api/http/byte_stream.hpp"
#include "tests/api/server/live_server.hpp"

#include <boost/asio/io_context.hpp>

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

namespace {

struct connected {
  asio::io_context io;
  tcp::acceptor acceptor{io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
  tcp::socket peer{io};
  std::optional<byte_stream> stream;

  connected() {
    peer.connect(acceptor.local_endpoint());
    stream.emplace(acceptor.accept());
  }

  /// Nothing if the read does not end, or is cancelled first.
  std::optional<boost::system::error_code> read(bool cancelled = false) {
    std::optional<boost::system::error_code> result;
    char byte = 0;
    stream->async_read_some(asio::buffer(&byte, 1), [&](boost::system::error_code ec, std::size_t) { result = ec; });
    io.restart();
    if (!cancelled)
      io.run_for(patience);
    if (result)
      return result;
    stream->cancel();
    io.run();
    CHECK(result == asio::error::make_error_code(asio::error::operation_aborted));
    return std::nullopt;
  }
};

} // namespace

TEST_CASE("Every read reports the end of the input, not only the first") {
  connected both;
  both.peer.close();
  for (int i = 0; i < 3; ++i)
    CHECK(both.read() == asio::error::make_error_code(asio::error::eof));
}

TEST_CASE("A cancelled read does not end the input") {
  connected both;
  CHECK_FALSE(both.read(true));
  both.peer.send(asio::buffer("x", 1));
  CHECK(both.read() == boost::system::error_code());
}
