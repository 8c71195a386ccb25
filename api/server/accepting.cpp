#include "api/server/accepting.hpp"

#include "api/server/http_session.hpp"
#include "api/server/server_context.hpp"
#include "api/server/wire/reply.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <exception>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace troupe {

namespace {

/// Pause after a failed accept, such as when no file descriptors are left.
constexpr auto accept_pause = std::chrono::milliseconds(100);
/// A refused connection keeps its socket until the client hangs up, at most this long.
constexpr auto refusal_time = std::chrono::seconds(2);
constexpr int most_turned_away = 64, most_with_tls = 8; // whose handshakes take time of the processor

[[noreturn]] void throw_cannot_listen(const server_options& options, const std::string& why) {
  const auto address = socket_path(options.host) ? options.host : options.host + ":" + std::to_string(options.port);
  throw failure(errc::unavailable, "cannot listen on " + address + ": " + why);
}

void bind(const server_options& options, const asio::generic::stream_protocol::endpoint& address,
          stream_acceptor& acceptor) {
  boost::system::error_code ec;
  acceptor.open(address.protocol(), ec);
  if (!ec)
    acceptor.set_option(stream_acceptor::reuse_address(true), ec);
  if (!ec)
    acceptor.bind(address, ec);
  if (!ec)
    acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec)
    throw_cannot_listen(options, ec.message());
}

/// Listens on a path. What a server that is gone has left there is replaced; nothing else is.
void bind_path(const server_options& options, const std::string& path, server_context& context) {
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path))
    throw_cannot_listen(options,
                        "a path must have 1 to " + std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes");
  const auto folder = std::filesystem::absolute(path).parent_path();
  if (std::error_code unknown; !std::filesystem::exists(folder, unknown) && !unknown)
    throw_cannot_listen(options, "there is no folder " + folder.string());
  const asio::local::stream_protocol::endpoint address(path);
  struct stat found = {};
  if (::lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode))
      throw_cannot_listen(options, "there is something else");
    boost::system::error_code ec;
    asio::local::stream_protocol::socket other(context.io);
    other.connect(address, ec);
    if (ec != boost::system::errc::connection_refused)
      throw_cannot_listen(options, ec ? ec.message() : "another server listens there");
    ::unlink(path.c_str());
  }
  bind(options, address, context.acceptor);
  context.path = path;
}

/// Makes the server listen, and returns the address that it is bound to.
tcp::endpoint bind_address(const server_options& options, server_context& context) {
  boost::system::error_code ec;
  tcp::resolver resolver(context.io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, ec);
  if (ec || found.empty())
    throw_cannot_listen(options, ec ? ec.message() : "no such address");
  const auto address = found.begin()->endpoint();
  bind(options, address, context.acceptor);
  return address;
}

/// A place among the connections that are being turned away.
class place_at_the_door {
public:
  explicit place_at_the_door(std::atomic<int>& taken) : taken_(&taken) { ++taken; }
  place_at_the_door(place_at_the_door&& other) noexcept : taken_(std::exchange(other.taken_, nullptr)) {}
  place_at_the_door& operator=(place_at_the_door&&) = delete;
  ~place_at_the_door() {
    if (taken_)
      --*taken_;
  }

private:
  std::atomic<int>* taken_;
};

/// Answers 503 to a connection above the limit and waits until the client has read it.
asio::awaitable<void> turn_away(std::shared_ptr<byte_stream> refused, place_at_the_door, std::string sentence) {
  auto& bytes = *refused;
  const auto why = reply::of({errc::unavailable, std::move(sentence), {}});
  const auto text = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
                    "Connection: close\r\nContent-Length: " +
    std::to_string(why.body.size()) + "\r\n\r\n" + why.body;
  boost::system::error_code ec;
  asio::steady_timer deadline(bytes.get_executor(), refusal_time);
  // The handler may run after this coroutine: cancelling a timer that has expired does not stop its handler.
  deadline.async_wait([weak = std::weak_ptr(refused)](boost::system::error_code cancelled) {
    if (const auto alive = weak.lock(); alive && !cancelled)
      alive->cancel();
  });
  if (bytes.has_tls())
    co_await bytes.async_handshake(asio::redirect_error(asio::use_awaitable, ec));
  if (!ec)
    co_await asio::async_write(bytes, asio::buffer(text), asio::redirect_error(asio::use_awaitable, ec));
  bytes.shutdown_send();
  char ignored[1024];
  while (!ec && std::chrono::steady_clock::now() < deadline.expiry())
    co_await bytes.async_read_some(asio::buffer(ignored), asio::redirect_error(asio::use_awaitable, ec));
}

void report_not_accepted(server_context& context, rate_limit& failures, const std::exception_ptr& thrown) {
  const auto left_out = failures.pass(rate_limit::clock::now());
  if (!left_out)
    return;
  std::string why;
  try {
    std::rethrow_exception(thrown);
  } catch (const boost::system::system_error& e) {
    why = e.code().message();
  } catch (const std::exception& e) {
    why = e.what();
  }
  context.log->write(log_level::error, "cannot accept", {{"why", why}, {"left_out", *left_out}});
}

/// Accepts one connection. Throws system_error if there is none to accept.
asio::awaitable<void> accept_one(server_context& context) {
  const auto strand = asio::make_strand(context.io);
  stream_socket socket(strand);
  co_await context.acceptor.async_accept(socket, asio::use_awaitable);
  boost::system::error_code ec;
  socket.set_option(tcp::no_delay(true), ec); // of a path there is none
  // The kernel's default send buffer would hold megabytes for a client that does not read.
  socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(context.options.sink_bytes)), ec);
  byte_stream bytes(std::move(socket));
  const auto identity = context.live.get()->tls;
  const auto from = bytes.peer();
  const auto refusal = context.make_room_for(from);
  if (refusal == connection_table::refusal::none) {
    if (identity)
      bytes.begin_tls(*identity);
    start_http_session(context, std::move(bytes));
    context.log->write(log_level::debug, "connection opened", {{"open", std::uint64_t(context.session_count())}});
    co_return;
  }
  context.log->write_refusal("connection refused",
                             {{"client", bytes.peer_address()}, {"open", std::uint64_t(context.session_count())}});
  if (context.turned_away >= (identity ? most_with_tls : most_turned_away))
    co_return; // closed without an answer
  if (identity)
    bytes.begin_tls(*identity);
  auto refused = std::make_shared<byte_stream>(std::move(bytes));
  const auto* sentence = refusal == connection_table::refusal::share ? "too many connections from this address"
                                                                     : "too many connections";
  asio::co_spawn(strand, turn_away(std::move(refused), place_at_the_door(context.turned_away), sentence),
                 asio::detached);
}

asio::awaitable<void> pause_accepting(server_context& context) {
  boost::system::error_code ec;
  asio::steady_timer pause(context.io, accept_pause);
  co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
}

} // namespace

std::optional<std::string> socket_path(std::string_view host) {
  constexpr std::string_view prefix = "unix:";
  return host.starts_with(prefix) ? std::optional(std::string(host.substr(prefix.size()))) : std::nullopt;
}

void listen(server_context& context) {
  const auto& options = context.options;
  auto& acceptor = context.acceptor;
  if (const auto path = socket_path(options.host)) { // no page reaches it, so Host needs no check
    if (options.socket < 0)
      return bind_path(options, *path, context);
    acceptor.assign(asio::local::stream_protocol(), options.socket);
    return;
  }
  tcp::endpoint address;
  if (options.socket >= 0) {
    boost::system::error_code ec;
    const auto host = asio::ip::make_address(options.host, ec);
    if (!ec)
      acceptor.assign(host.is_v6() ? tcp::v6() : tcp::v4(), options.socket, ec);
    if (ec)
      throw_cannot_listen(options, ec.message());
    address = tcp_endpoint(acceptor.local_endpoint()).value_or(tcp::endpoint());
  } else {
    address = bind_address(options, context);
  }
  context.port = tcp_endpoint(acceptor.local_endpoint()).value_or(tcp::endpoint()).port();
  context.address = address.address();
  known_hosts known(context.address, options.host, options.allowed_hosts);
  // With keys, Host needs no check: a foreign page has no key.
  if (context.keys.is_open())
    context.live.set(live_settings(options, std::move(known)));
}

void take_connection(server_context& context, const std::string& message, const descriptor& given) {
  try {
    auto request = moving_request_in(message);
    sockaddr_storage own = {};
    socklen_t length = sizeof own;
    if (::getsockname(given.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
      throw failure(errc::unavailable, "what was given is no connection");
    stream_socket socket(asio::make_strand(context.io));
    const auto copy = ::fcntl(given.get(), F_DUPFD_CLOEXEC, 0);
    socket.assign(asio::generic::stream_protocol(own.ss_family, 0), copy);
    start_http_session(context, byte_stream(std::move(socket)), std::move(request));
  } catch (const std::exception& e) {
    context.log->write_refusal("a connection that was handed over is lost", {{"why", std::string(e.what())}});
  }
}

asio::awaitable<void> accept_all(server_context& context) {
  rate_limit failures(0.1, 1); // every attempt fails while there are no descriptors
  while (context.acceptor.is_open()) {
    std::exception_ptr thrown;
    try {
      co_await accept_one(context);
      continue;
    } catch (const std::exception&) {
      thrown = std::current_exception();
    }
    if (!context.acceptor.is_open())
      co_return;
    try {
      report_not_accepted(context, failures, thrown);
      co_await pause_accepting(context);
    } catch (const std::exception&) {
      // It goes on without a line or a pause.
    }
  }
}

} // namespace troupe
