#include "api/hub/fetch.hpp"

#include "runtime/support/text/ascii.hpp"
#include "runtime/support/text/base64.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <array>
#include <cstdlib>
#include <exception>
#include <memory>

#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <unistd.h>

namespace troupe::hub {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t piece_bytes = 256 << 10;
constexpr auto connect_time = std::chrono::seconds(20);
constexpr auto result_of = asio::as_tuple(asio::use_awaitable);
constexpr auto user_agent = "troupe/" TROUPE_VERSION;

/// OpenSSL's own places are those of the machine that built it, which another one may lack.
void trust_system(asio::ssl::context& context) {
  context.set_default_verify_paths();
  if (std::getenv("SSL_CERT_FILE") || access(X509_get_default_cert_file(), R_OK) == 0)
    return;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"})
    if (error_code ignored; access(file, R_OK) == 0) {
      context.load_verify_file(file, ignored);
      return;
    }
}

[[noreturn]] void fail_connection(const std::string& at, const error_code& why) {
  throw connection_failure(at + ": " +
                           (why == beast::error::timeout ? "no answer in time"
                              : why == http::error::end_of_stream || why == http::error::partial_message ||
                                why == asio::ssl::error::stream_truncated || why == asio::error::eof
                              ? "the connection broke"
                              : why.message()));
}

/// One request to one address. Its members outlive the connection.
class exchange {
public:
  exchange(const request& what, const url& at, bool with_token, const response_sink& to, const fetch_limits& limits,
           response_head& head)
    : what_(what), at_(at), with_token_(with_token), to_(to), limits_(limits), head_(head) {}

  /// The address of a redirect, or nothing if the answer was read.
  std::optional<std::string> run() {
    std::exception_ptr failed;
    std::optional<std::string> next;
    asio::co_spawn(io_, talk(), [&](std::exception_ptr thrown, std::optional<std::string> to) {
      failed = thrown;
      next = std::move(to);
    });
    io_.run();
    if (failed)
      std::rethrow_exception(failed);
    return next;
  }

private:
  asio::awaitable<std::optional<std::string>> talk() {
    const auto proxy = proxy_for(at_);
    const auto& first = proxy ? *proxy : at_;
    beast::tcp_stream stream(io_);
    tcp::resolver resolver(io_);
    const auto [unknown, addresses] = co_await resolver.async_resolve(first.host, first.port, result_of);
    if (unknown)
      fail_connection(first.origin(), unknown);
    stream.expires_after(connect_time);
    const auto [refused, ignored] = co_await stream.async_connect(addresses, result_of);
    if (refused)
      fail_connection(first.origin(), refused);
    auto target = at_.target;
    if (!at_.tls) {
      if (proxy)
        target.insert(0, at_.origin());
      co_return co_await ask(stream, stream, target, proxy ? &*proxy : nullptr);
    }
    if (proxy)
      co_await open_tunnel(stream, *proxy);
    asio::ssl::context tls(asio::ssl::context::tls_client);
    SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
    trust_system(tls);
    tls.set_verify_mode(asio::ssl::verify_peer);
    asio::ssl::stream<beast::tcp_stream&> secure(stream, tls);
    secure.set_verify_callback(asio::ssl::host_name_verification(at_.host));
    SSL_set_tlsext_host_name(secure.native_handle(), at_.host.c_str());
    stream.expires_after(limits_.idle);
    const auto [unsafe] = co_await secure.async_handshake(asio::ssl::stream_base::client, result_of);
    if (unsafe && unsafe.category() == asio::error::get_ssl_category())
      throw failure(errc::unavailable,
                    at_.origin() + ": " + unsafe.message() +
                      "; certificates are those of the system, or of the file that SSL_CERT_FILE names");
    if (unsafe)
      fail_connection(at_.origin(), unsafe);
    co_return co_await ask(secure, stream, target, nullptr);
  }

  asio::awaitable<void> open_tunnel(beast::tcp_stream& stream, const url& proxy) {
    const auto to = (at_.host.find(':') == at_.host.npos ? at_.host : "[" + at_.host + "]") + ":" + at_.port;
    http::request<http::empty_body> connect(http::verb::connect, to, 11);
    connect.set(http::field::host, to);
    connect.set(http::field::user_agent, user_agent);
    if (!proxy.user.empty())
      connect.set(http::field::proxy_authorization, "Basic " + encode_base64(proxy.user));
    stream.expires_after(limits_.idle);
    const auto [unsent, sent] = co_await http::async_write(stream, connect, result_of);
    if (unsent)
      fail_connection(proxy.origin(), unsent);
    beast::flat_buffer buffer(header_bytes);
    http::response_parser<http::empty_body> answer;
    answer.skip(true);
    const auto [unread, read] = co_await http::async_read_header(stream, buffer, answer, result_of);
    if (unread)
      fail_connection(proxy.origin(), unread);
    if (answer.get().result() != http::status::ok)
      throw failure(errc::unavailable,
                    "the proxy " + proxy.origin() + " refuses to connect to " + to + ": status " +
                      std::to_string(answer.get().result_int()));
  }

  template <class Stream>
  asio::awaitable<std::optional<std::string>> ask(Stream& stream, beast::tcp_stream& lowest, const std::string& target,
                                                  const url* proxy) {
    http::request<http::empty_body> question(what_.head ? http::verb::head : http::verb::get, target, 11);
    question.set(http::field::host, at_.authority());
    question.set(http::field::user_agent, user_agent);
    question.set(http::field::accept_encoding, "identity"); // what is stored has checksums
    question.set(http::field::connection, "close");
    if (with_token_ && !what_.token.empty())
      question.set(http::field::authorization, "Bearer " + what_.token);
    if (what_.from)
      question.set(http::field::range, "bytes=" + std::to_string(*what_.from) + "-");
    if (proxy && !proxy->user.empty())
      question.set(http::field::proxy_authorization, "Basic " + encode_base64(proxy->user));
    lowest.expires_after(limits_.idle);
    const auto [unsent, sent] = co_await http::async_write(stream, question, result_of);
    if (unsent)
      fail_connection(at_.origin(), unsent);
    beast::flat_buffer buffer(header_bytes + piece_bytes);
    http::response_parser<http::buffer_body> parser;
    parser.header_limit(header_bytes);
    parser.body_limit(boost::none);
    parser.skip(what_.head);
    const auto [no_head, head_bytes] = co_await http::async_read_header(stream, buffer, parser, result_of);
    if (no_head)
      fail_connection(at_.origin(), no_head);
    const auto& message = parser.get();
    head_.status = static_cast<int>(message.result_int());
    head_.address = at_.origin() + at_.target.substr(0, at_.target.find('?'));
    std::string location;
    for (const auto& field : message) {
      auto name = ascii_lower(field.name_string());
      if (field.name() == http::field::location)
        location = field.value();
      else
        head_.fields.emplace(std::move(name), field.value());
    }
    if (head_.status >= 300 && head_.status < 400 && !location.empty())
      co_return location;
    if (head_.status < 300) // of redirects, these are about their own bodies
      for (const auto name : {http::field::content_length, http::field::content_range, http::field::content_type})
        if (const auto found = message.find(name); found != message.end()) {
          head_.fields[ascii_lower(to_string(name))] = found->value();
        }
    if (!to_.head(head_) || what_.head)
      co_return std::nullopt;
    const auto piece = std::make_unique<std::array<char, piece_bytes>>();
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = piece->data();
      body.size = piece->size();
      lowest.expires_after(limits_.idle);
      const auto [broken, bytes] = co_await http::async_read_some(stream, buffer, parser, result_of);
      if (const auto got = piece->size() - body.size; got > 0)
        to_.body({piece->data(), got});
      if (broken && broken != http::error::need_buffer)
        fail_connection(at_.origin(), broken);
    }
    co_return std::nullopt;
  }

  static constexpr std::uint32_t header_bytes = 64 << 10;

  asio::io_context io_{1};
  const request& what_;
  const url& at_;
  bool with_token_;
  const response_sink& to_;
  const fetch_limits& limits_;
  response_head& head_;
};

} // namespace

std::string_view response_head::field(std::string_view name) const {
  const auto found = fields.find(std::string(name));
  return found == fields.end() ? std::string_view() : std::string_view(found->second);
}

void fetch(const request& what, const response_sink& to, const fetch_limits& limits) {
  const auto first = parse_url(what.address);
  auto at = first;
  response_head head;
  for (int left = limits.redirects;; --left) {
    const auto next = exchange(what, at, at.origin() == first.origin(), to, limits, head).run();
    if (!next)
      return;
    if (left == 0)
      throw failure(errc::unavailable,
                    first.origin() + ": sends from one address to the next, more often than allowed");
    const auto behind = resolve(at, *next);
    if (what.head && behind.origin() != first.origin()) { // which may be meant for GET alone
      head.status = 200;
      to.head(head);
      return;
    }
    if (at.tls && !behind.tls)
      throw failure(errc::unavailable, at.origin() + ": sends to an address without TLS, " + behind.origin());
    at = behind;
  }
}

} // namespace troupe::hub
