#include "api/http/byte_stream.hpp"
#include "tests/api/server/tls_client.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <doctest/doctest.h>

#include <array>
#include <future>
#include <thread>

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

namespace {

/// The server's end of a connection over TLS; the client's is on a thread.
struct connected_by_tls : connected {
  const certificate_files files;
  const tls_identity identity{files.certificate(), files.key()};

  template <class Client>
  explicit connected_by_tls(Client client)
    : thread([this, client] {
        tls_wire wire(peer.native_handle());
        client(wire, peer);
      }) {
    stream->begin_tls(identity);
    boost::system::error_code shaken = asio::error::would_block;
    stream->async_handshake([&](boost::system::error_code ec, std::size_t) { shaken = ec; });
    io.run_for(patience);
    CHECK_FALSE(shaken);
  }
  std::jthread thread;
};

} // namespace

TEST_CASE("Over TLS much goes both ways at once, in order, however small the kernel's buffers are") {
  const std::string own(1 << 20, 'a'), others(1 << 20, 'b');
  std::string heard;
  connected_by_tls both([&](tls_wire& wire, tcp::socket&) {
    char part[5000];
    for (std::size_t sent = 0; sent < others.size() || heard.size() < own.size();) {
      if (sent < others.size())
        sent += static_cast<std::size_t>(wire.send(std::string_view(others).substr(sent, 3000)));
      if (heard.size() < own.size())
        heard.append(part, static_cast<std::size_t>(wire.receive(part, sizeof part)));
    }
  });
  ::setsockopt(both.stream->native_handle(), SOL_SOCKET, SO_SNDBUF, std::array{4096}.data(), sizeof(int));
  std::string read(others.size(), ' ');
  int ended = 0;
  const auto done = [&](boost::system::error_code ec, std::size_t count) {
    CHECK_FALSE(ec);
    CHECK(count == own.size());
    ++ended;
  };
  asio::async_write(*both.stream, asio::buffer(own), done);
  asio::async_read(*both.stream, asio::buffer(read), done);
  both.io.restart();
  both.io.run_for(patience);
  CHECK(ended == 2);
  both.stream->close();
  both.thread.join();
  CHECK(read == others);
  CHECK(heard == own);
}

TEST_CASE("A cancelled read over TLS loses nothing, and every read reports the end, whether TLS says so or not") {
  for (const bool says_so : {true, false}) {
    std::promise<void> read_once;
    connected_by_tls both([&](tls_wire& wire, tcp::socket& socket) {
      read_once.get_future().wait();
      wire.send("xy");
      if (says_so)
        wire.say_end();
      boost::system::error_code ignored;
      socket.shutdown(tcp::socket::shutdown_send, ignored);
    });
    CHECK_FALSE(both.read(true));
    read_once.set_value();
    CHECK(both.read() == boost::system::error_code());
    CHECK(both.read() == boost::system::error_code());
    for (int i = 0; i < 3; ++i)
      CHECK(both.read() == asio::error::make_error_code(asio::error::eof));
  }
}
