#include "api/server/http_server.hpp"

#include "api/server/http_session.hpp"
#include "api/server/reply.hpp"
#include "api/server/server_context.hpp"

#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <random>
#include <thread>
#include <utility>

#include <malloc.h>

namespace troupe {

namespace {

/// Pause after a failed accept, such as when no file descriptors are left.
constexpr auto accept_pause = std::chrono::milliseconds(100);
/// A refused connection keeps its socket until the client hangs up, at most this long.
constexpr auto refusal_time = std::chrono::seconds(2);
constexpr int most_turned_away = 64;
/// Delay before free memory is returned to the system, repeated while requests run.
constexpr auto trim_interval = std::chrono::seconds(3);
/// Until the model is loaded, of which there are no figures.
constexpr auto loading_pause = std::chrono::milliseconds(500);
/// Time for clients to read that their requests were cut short.
constexpr auto cut_notice_time = std::chrono::seconds(2);

[[noreturn]] void throw_cannot_listen(const server_options& options, const std::string& why) {
  const auto address = options.host + ":" + std::to_string(options.port);
  throw failure(errc::unavailable, "cannot listen on " + address + ": " + why);
}

/// Makes `acceptor` listen, and returns the address that it is bound to.
tcp::endpoint bind_address(const server_options& options, server_context& context, tcp::acceptor& acceptor) {
  boost::system::error_code ec;
  tcp::resolver resolver(context.io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, ec);
  if (ec || found.empty())
    throw_cannot_listen(options, ec ? ec.message() : "no such address");
  const auto address = found.begin()->endpoint();
  acceptor.open(address.protocol(), ec);
  if (!ec)
    acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec)
    acceptor.bind(address, ec);
  if (!ec)
    acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec)
    throw_cannot_listen(options, ec.message());
  return address;
}

void listen(server_context& context) {
  const auto& options = context.options;
  auto& acceptor = context.acceptor;
  tcp::endpoint address;
  if (options.socket >= 0) {
    boost::system::error_code ec;
    const auto host = asio::ip::make_address(options.host, ec);
    if (!ec)
      acceptor.assign(host.is_v6() ? tcp::v6() : tcp::v4(), options.socket, ec);
    if (ec)
      throw_cannot_listen(options, ec.message());
    address = acceptor.local_endpoint();
  } else
    address = bind_address(options, context, acceptor);
  context.port = acceptor.local_endpoint().port();
  const known_hosts known(address.address(), options.host, options.allowed_hosts);
  // With keys, Host needs no check: a foreign page has no key.
  if (context.keys.is_open())
    context.hosts = known;
}

std::string random_prefix() {
  char text[16];
  return std::string(text, static_cast<std::size_t>(std::snprintf(text, sizeof text, "%08x-", std::random_device()())));
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
asio::awaitable<void> turn_away(std::shared_ptr<tcp::socket> refused, place_at_the_door, std::string sentence) {
  auto& socket = *refused;
  const auto why = reply::of({errc::unavailable, std::move(sentence), {}});
  const auto text = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
                    "Connection: close\r\nContent-Length: " +
    std::to_string(why.body.size()) + "\r\n\r\n" + why.body;
  boost::system::error_code ec;
  asio::steady_timer deadline(socket.get_executor(), refusal_time);
  // The handler may run after this coroutine: cancelling a timer that has expired does not stop its handler.
  deadline.async_wait([weak = std::weak_ptr(refused)](boost::system::error_code cancelled) {
    boost::system::error_code ignored;
    if (const auto alive = weak.lock(); alive && !cancelled)
      alive->cancel(ignored);
  });
  co_await asio::async_write(socket, asio::buffer(text), asio::redirect_error(asio::use_awaitable, ec));
  boost::system::error_code not_connected;
  socket.shutdown(tcp::socket::shutdown_send, not_connected);
  char ignored[1024];
  while (!ec)
    co_await socket.async_read_some(asio::buffer(ignored), asio::redirect_error(asio::use_awaitable, ec));
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
  tcp::socket socket(strand);
  co_await context.acceptor.async_accept(socket, asio::use_awaitable);
  boost::system::error_code ec;
  socket.set_option(tcp::no_delay(true), ec);
  // The kernel's default send buffer would hold megabytes for a client that does not read.
  socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(context.options.sink_bytes)), ec);
  byte_stream bytes(std::move(socket));
  const auto from = bytes.peer();
  const auto refusal = context.make_room_for(from);
  if (refusal == connection_table::refusal::none) {
    start_http_session(context, std::move(bytes));
    context.log->write(log_level::debug, "connection opened", {{"open", std::uint64_t(context.session_count())}});
    co_return;
  }
  context.log->write_refusal("connection refused",
                             {{"client", bytes.peer_address()}, {"open", std::uint64_t(context.session_count())}});
  if (context.turned_away >= most_turned_away)
    co_return; // closed without an answer
  auto refused = std::make_shared<tcp::socket>(bytes.release_socket());
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

/// Goes on after exceptions, such as for want of memory: otherwise the server would run and accept nothing.
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

void cut_all(server_context& context) {
  const auto open = context.sessions();
  for (const auto& one : open)
    one->cut();
  if (open.empty())
    return;
  context.grace.expires_after(cut_notice_time);
  context.grace.async_wait([&context](boost::system::error_code cancelled) {
    if (cancelled)
      return;
    for (const auto& one : context.sessions())
      one->abort();
  });
}

void start_draining(server_context& context) {
  if (context.draining.exchange(true))
    return;
  context.stop_timers();
  const auto open = context.sessions();
  for (const auto& one : open)
    one->drain();
  // Until the last of them ends, /health tells everybody else that the server is draining.
  if (open.empty())
    return context.end_drain();
  context.grace.expires_after(context.options.stop_grace);
  context.grace.async_wait([&context](boost::system::error_code cancelled) {
    if (!cancelled)
      cut_all(context);
  });
}

key_ring::listener tell_of_keys(std::shared_ptr<server_log> log) {
  return [log](std::size_t keys, const std::string& why_not) {
    if (why_not.empty())
      log->write(log_level::info, "keys", {{"count", std::uint64_t(keys)}});
    else
      log->write(log_level::error, "keys", {{"why", why_not}, {"kept", std::uint64_t(keys)}});
  };
}

} // namespace

server_context::server_context(service& engine, server_options given)
  : engine(engine),
    options(std::move(given)),
    log(options.log ? options.log : server_log::on_stream(std::clog, log_level::off, log_format::text)),
    models(engine, options),
    counted(engine, options.figures_interval),
    keys(options.api_keys, options.key_file, tell_of_keys(log)),
    quotas("one API key", options.max_requests_per_key),
    bodies(std::max(options.max_body_memory, options.max_body_bytes)),
    answers(options.max_answer_memory),
    responses(options.max_stored_responses, options.max_response_memory),
    id_prefix_(random_prefix()),
    connections_(options.max_connections),
    io(options.threads),
    acceptor(asio::make_strand(io)),
    grace(acceptor.get_executor()),
    brief(options.workers, options.max_waiting),
    lengthy(options.workers / 2, options.max_waiting),
    arduous(options.workers / 2, options.max_waiting, true),
    reports(1, options.max_waiting),
    trim_timer_(acceptor.get_executor()),
    figures_timer_(acceptor.get_executor()) {}

void server_context::follow_policy(const std::string& key, const served_model& model, generation& to) {
  if (options.policy.is_empty())
    return;
  try {
    apply_policy(options.policy.of(key), model, to);
  } catch (const failure&) {
    counted.refused_by_policy();
    throw;
  }
}

std::string server_context::client_of(std::size_t key, const std::string& peer) const {
  return keys.is_open() ? peer : "key " + std::to_string(key);
}

void server_context::trim_memory_later() {
  if (will_trim_.exchange(true))
    return;
  try {
    asio::co_spawn(trim_timer_.get_executor(), trim_memory(), asio::detached);
  } catch (const std::bad_alloc&) { // another time
    will_trim_ = false;
  }
}

asio::awaitable<void> server_context::wait_until_idle() {
  boost::system::error_code ec;
  do {
    if (draining)
      co_return;
    trim_timer_.expires_after(trim_interval);
    co_await trim_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  } while (counted.in_flight() > 0 || bodies.taken() > 0);
}

asio::awaitable<void> server_context::trim_memory() {
  try {
    co_await wait_until_idle();
  } catch (const std::bad_alloc&) {
    // It is tried now.
  }
  will_trim_ = false;
  // Load peaks leave hundreds of megabytes in the allocator, which returns little on its own.
  if (!draining)
    co_await reports.run([] { ::malloc_trim(0); });
}

asio::awaitable<void> server_context::keep_figures() {
  boost::system::error_code ec;
  while (!draining) {
    bool kept = false;
    try {
      kept = co_await reports.run([this] { return counted.keep_figures(); });
    } catch (const std::exception&) {
      // A gap in the figures.
    }
    if (draining) // stop_timers() was called meanwhile
      co_return;
    figures_timer_.expires_after(kept ? options.figures_interval : std::min(options.figures_interval, loading_pause));
    co_await figures_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

void server_context::stop_timers() {
  trim_timer_.cancel();
  figures_timer_.cancel();
}

std::string server_context::next_request_id() { return id_prefix_ + std::to_string(++last_id_); }

connection_table::refusal server_context::make_room_for(const std::string& address) {
  std::shared_ptr<session> gives_way;
  const std::lock_guard lock(mutex_);
  const auto verdict = connections_.judge(address);
  if (verdict.gives_way)
    gives_way = sessions_.at(static_cast<const session*>(verdict.gives_way)).of.lock();
  if (gives_way) {
    gives_way->give_way();
    connections_.set_idle(gives_way.get(), false); // for each newcomer another one
  }
  return verdict.why;
}

void server_context::add_session(const std::shared_ptr<session>& one, const std::string& address) {
  const std::lock_guard lock(mutex_);
  sessions_[one.get()] = {one, draining};
  late_sessions_ += draining;
  connections_.open(one.get(), address);
}

void server_context::set_idle(const session* one, bool idle) {
  const std::lock_guard lock(mutex_);
  connections_.set_idle(one, idle);
}

void server_context::remove_session(const session* one) {
  const std::lock_guard lock(mutex_);
  connections_.close(one);
  const auto found = sessions_.find(one);
  if (found == sessions_.end())
    return;
  late_sessions_ -= found->second.late;
  sessions_.erase(found);
  if (draining && sessions_.size() == late_sessions_)
    try {
      asio::post(grace.get_executor(), [this] { end_drain(); });
    } catch (const std::bad_alloc&) {
      // The grace ends it.
    }
}

void server_context::end_drain() {
  boost::system::error_code ec;
  acceptor.close(ec);
  grace.cancel();
  for (const auto& late : sessions())
    late->abort();
}

std::vector<std::shared_ptr<session>> server_context::sessions() const {
  std::vector<std::shared_ptr<session>> result;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, one] : sessions_)
    if (auto alive = one.of.lock())
      result.push_back(std::move(alive));
  return result;
}

std::size_t server_context::session_count() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

server::server(service& engine, server_options options)
  : context_(std::make_unique<server_context>(engine, std::move(options))) {
  listen(*context_);
  asio::co_spawn(context_->acceptor.get_executor(), accept_all(*context_), asio::detached);
  if (context_->options.page)
    asio::co_spawn(context_->acceptor.get_executor(), context_->keep_figures(), asio::detached);
}

server::~server() = default;

std::size_t server::running_requests() const { return context_->counted.in_flight(); }

std::uint16_t server::port() const { return context_->port; }

namespace {

void report(server_context& context, const std::exception& thrown) noexcept {
  try {
    context.log->write_refusal("a connection failed", {{"why", std::string(thrown.what())}});
  } catch (const std::exception&) {
    // There is no memory for a line.
  }
}

/// A handler that throws, most likely for want of memory, has cost its own connection at most.
void serve(server_context& context) {
  for (;;)
    try {
      context.io.run();
      return;
    } catch (const std::exception& e) {
      report(context, e);
    }
}

} // namespace

void server::run_until_stopped() {
  std::vector<std::jthread> helpers;
  try {
    for (int i = 1; i < context_->options.threads; ++i)
      helpers.emplace_back([this] { serve(*context_); });
  } catch (...) { // a thread could not be started: stop those that run
    context_->io.stop();
    throw;
  }
  serve(*context_);
  helpers.clear();
  for (auto* lane : {&context_->brief, &context_->lengthy, &context_->arduous, &context_->reports})
    lane->join();
}

void server::stop() {
  asio::post(context_->acceptor.get_executor(), [this] { start_draining(*context_); });
}

void server::stop_now() {
  asio::post(context_->acceptor.get_executor(), [this] {
    start_draining(*context_);
    cut_all(*context_);
  });
}

} // namespace troupe
