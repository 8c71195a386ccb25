#include "api/http/tls_link.hpp"

#include <boost/asio/error.hpp>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <new>

#include <sys/socket.h>

namespace troupe {

namespace {

constexpr char handshake_record = 22; // the first byte of a client that speaks TLS

// OpenSSL's own socket would raise SIGPIPE, and would have to be set to return at once.

int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio))) - 1; }

bool is_momentary() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

int send_some(BIO* bio, const char* from, int bytes) {
  BIO_clear_retry_flags(bio);
  const auto count = ::send(socket_of(bio), from, static_cast<std::size_t>(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count < 0 && is_momentary())
    BIO_set_retry_write(bio);
  return static_cast<int>(count);
}

int receive_some(BIO* bio, char* to, int bytes) {
  BIO_clear_retry_flags(bio);
  const auto count = ::recv(socket_of(bio), to, static_cast<std::size_t>(bytes), MSG_DONTWAIT);
  if (count < 0 && is_momentary())
    BIO_set_retry_read(bio);
  if (count == 0)
    BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(count);
}

long answer_control(BIO* bio, int what, long, void*) {
  return what == BIO_CTRL_FLUSH ? 1 : what == BIO_CTRL_EOF ? BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 : 0;
}

const BIO_METHOD* over_sockets() {
  static const BIO_METHOD* method = [] {
    auto* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (!made || BIO_meth_set_write(made, send_some) != 1 || BIO_meth_set_read(made, receive_some) != 1 ||
        BIO_meth_set_ctrl(made, answer_control) != 1)
      throw std::bad_alloc();
    return made;
  }();
  return method;
}

/// Before each call whose result SSL_get_error() explains: by what this thread has left from before, too.
void forget_errors() {
  ERR_clear_error();
  errno = 0;
}

void point_at(BIO* bio, int socket) {
  // From 1 on, as OpenSSL takes no data for none.
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket) + 1));
}

} // namespace

void tls_link::freed::operator()(ssl_st* of) const { SSL_free(of); }

tls_link::tls_link(const tls_identity& who, int socket) : ssl_(SSL_new(who.get())) {
  auto* bio = ssl_ ? BIO_new(over_sockets()) : nullptr;
  ERR_clear_error();
  if (!bio)
    throw std::bad_alloc();
  point_at(bio, socket);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_accept_state(ssl_.get());
}

tls_link::outcome tls_link::settled(int result, std::size_t count) {
  if (result > 0)
    return {count};
  const auto why = SSL_get_error(ssl_.get(), result);
  const auto number = errno;
  if (const char* text = why == SSL_ERROR_SSL ? ERR_reason_error_string(ERR_peek_last_error()) : nullptr)
    trouble_ = text;
  switch (why) {
    case SSL_ERROR_WANT_READ: return {0, {}, boost::asio::socket_base::wait_read};
    case SSL_ERROR_WANT_WRITE: return {0, {}, boost::asio::socket_base::wait_write};
    case SSL_ERROR_ZERO_RETURN: return {0, boost::asio::error::eof};
    case SSL_ERROR_SYSCALL:
      broken_ = true;
      return {0,
              number ? boost::system::error_code(number, boost::system::system_category()) : boost::asio::error::eof};
    default: broken_ = true; return {0, boost::system::errc::make_error_code(boost::system::errc::protocol_error)};
  }
}

tls_link::outcome tls_link::shake_hands() {
  char first = 0;
  const auto count = speaks_tls_ ? 1 : ::recv(socket_of(SSL_get_rbio(ssl_.get())), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count < 0 && is_momentary())
    return {0, {}, boost::asio::socket_base::wait_read};
  if (count <= 0)
    return {0,
            count == 0 ? boost::asio::error::eof : boost::system::error_code(errno, boost::system::system_category())};
  if (!speaks_tls_ && first != handshake_record)
    return {0, boost::system::errc::make_error_code(boost::system::errc::wrong_protocol_type)};
  speaks_tls_ = true;
  forget_errors();
  return settled(SSL_do_handshake(ssl_.get()), 0);
}

tls_link::outcome tls_link::read(void* to, std::size_t bytes) {
  std::size_t count = 0;
  forget_errors();
  const auto result = SSL_read_ex(ssl_.get(), to, bytes, &count);
  return settled(result, count);
}

tls_link::outcome tls_link::write(const void* from, std::size_t bytes) {
  std::size_t count = 0;
  forget_errors();
  const auto result = SSL_write_ex(ssl_.get(), from, std::min(bytes, record_bytes), &count);
  return settled(result, count);
}

tls_link::outcome tls_link::say_end() {
  if (broken_ || said_end_ || !SSL_is_init_finished(ssl_.get()))
    return {};
  forget_errors();
  const auto result = SSL_shutdown(ssl_.get());
  said_end_ = result >= 0; // 0: the client has not said so yet, which nobody waits for
  return said_end_ ? outcome{} : settled(result, 0);
}

void tls_link::let_go() {
  point_at(SSL_get_rbio(ssl_.get()), -1);
  broken_ = true;
}

} // namespace troupe
