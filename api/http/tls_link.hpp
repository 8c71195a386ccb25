// TLS over one connected socket, whose reads and writes never wait: who gets `waits` waits for the socket and tries again.
// Belongs to a byte_stream and is used on its strand only.
#pragma once

#include "api/http/tls_identity.hpp"

#include <boost/asio/socket_base.hpp>
#include <boost/system/error_code.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

struct ssl_st; // OpenSSL's

namespace troupe {

class tls_link {
public:
  /// What came of a try: bytes, how it ended, or what to wait for.
  struct outcome {
    std::size_t count = 0;
    boost::system::error_code ec = {};
    std::optional<boost::asio::socket_base::wait_type> waits = {};
  };

  /// The most bytes that one write takes.
  static constexpr std::size_t record_bytes = 16 << 10;

  /// Throws bad_alloc.
  tls_link(const tls_identity& who, int socket);

  /// The server's part. If the client does not speak TLS, this ends with wrong_protocol_type, and what it sent can be read
  /// from the socket.
  outcome shake_hands();
  /// eof at the end of the client's input, whether it said so by TLS or not.
  outcome read(void* to, std::size_t bytes);
  /// Takes some of the bytes. After `waits` the same ones must be tried again.
  outcome write(const void* from, std::size_t bytes);
  /// Tells the client that nothing more comes, so that it knows an answer's end from a connection's.
  outcome say_end();
  /// Why OpenSSL failed; empty if it did not.
  std::string_view trouble() const { return trouble_; }
  /// The socket is closed: nothing is read or written any more.
  void let_go();

private:
  struct freed {
    void operator()(ssl_st* of) const;
  };

  outcome settled(int result, std::size_t count);

  std::unique_ptr<ssl_st, freed> ssl_;
  std::string_view trouble_;
  bool speaks_tls_ = false; // the client does, by its first byte
  bool said_end_ = false;
  bool broken_ = false; // nothing can be said any more
};

} // namespace troupe
