// The client's side of TLS, for the clients of other tests. For tests only.
#pragma once

#include "tests/api/http/certificates.hpp"
#include "tests/api/server/live_server.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace troupe::test {

/// Over a socket that waits. A connection that ends without TLS's own word for it is an error.
class tls_wire : public raw_client::wire {
public:
  explicit tls_wire(int socket, int version = TLS1_3_VERSION) : ssl_(SSL_new(context()), SSL_free) {
    std::signal(SIGPIPE, SIG_IGN);
    SSL_set_min_proto_version(ssl_.get(), version);
    SSL_set_max_proto_version(ssl_.get(), version);
    SSL_set_fd(ssl_.get(), socket);
    int met;
    do // it fails in a process that was stopped and goes on
      errno = 0, met = SSL_connect(ssl_.get());
    while (met != 1 && errno == EINTR);
    if (met != 1)
      throw std::runtime_error("the server does not speak TLS");
  }

  ssize_t send(std::string_view bytes) override {
    std::size_t sent = 0;
    ERR_clear_error();
    return SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent) == 1 ? static_cast<ssize_t>(sent) : -1;
  }
  ssize_t receive(char* to, std::size_t bytes) override {
    std::size_t count = 0;
    ERR_clear_error();
    errno = 0;
    const auto result = SSL_read_ex(ssl_.get(), to, bytes, &count);
    const auto why = SSL_get_error(ssl_.get(), result);
    if (result == 1 || why == SSL_ERROR_ZERO_RETURN)
      return static_cast<ssize_t>(count);
    if (why == SSL_ERROR_WANT_READ) {
      if (errno != EINTR)
        errno = EAGAIN; // the socket's time limit
      return -1;
    }
    throw std::runtime_error("the connection was cut");
  }

  /// Tells the server that nothing more comes.
  void say_end() { SSL_shutdown(ssl_.get()); }
  /// Takes new keys for both directions, with TLS 1.3.
  void change_keys() { SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_REQUESTED); }
  /// Of the server's certificate.
  std::string name() const {
    char text[100] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(SSL_get0_peer_certificate(ssl_.get())), NID_commonName, text,
                              sizeof text);
    return text;
  }

private:
  static SSL_CTX* context() {
    static const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> made(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    return made.get();
  }

  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
};

inline std::unique_ptr<raw_client::wire> over_tls(int socket) { return std::make_unique<tls_wire>(socket); }

/// A blocking client that speaks HTTP over TLS.
class tls_client : public raw_client {
public:
  explicit tls_client(std::uint16_t port, int version = TLS1_3_VERSION, int receive_buffer = 0)
    : raw_client(port, receive_buffer) {
    speak([&](int socket) {
      auto made = std::make_unique<tls_wire>(socket, version);
      tls = made.get();
      return made;
    });
  }
  tls_wire* tls = nullptr;
};

inline server_options with_tls(const certificate_files& files, server_options options = {}) {
  options.tls_certificate = files.certificate();
  options.tls_key = files.key();
  return options;
}

} // namespace troupe::test
