#include "api/server/http_server.hpp"

#include "api/server/accepting.hpp"
#include "api/server/server_context.hpp"
#include "runtime/support/machine/threads.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

#include <exception>
#include <thread>
#include <utility>

namespace troupe {

namespace {

/// Time for clients to read that their requests were cut short.
constexpr auto cut_notice_time = std::chrono::seconds(2);

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

void start_draining(server_context& context, std::chrono::milliseconds grace) {
  if (context.draining.exchange(true) && !context.replaced)
    return;
  context.stop_timers();
  context.streams.stop();
  const auto open = context.sessions();
  for (const auto& one : open)
    one->drain();
  // Until the last of them ends, /health tells everybody else that the server is draining.
  if (open.empty())
    return context.end_drain();
  context.grace.expires_after(grace);
  context.grace.async_wait([&context](boost::system::error_code cancelled) {
    if (!cancelled)
      cut_all(context);
  });
}

void tell_of_identity(server_context& context) {
  if (const auto own = context.live.get()->tls)
    for (const auto& each : own->remarks())
      context.log->say(log_level::warn, "tls", each);
}

} // namespace

server::server(service& engine, server_options options)
  : context_(std::make_unique<server_context>(engine, std::move(options))) {
  listen(*context_);
  tell_of_identity(*context_);
  if (!context_->options.accept_later)
    accept();
  if (context_->options.page)
    asio::co_spawn(context_->acceptor.get_executor(), context_->keep_figures(), asio::detached);
}

server::~server() = default;

void server::accept() {
  asio::post(context_->acceptor.get_executor(), [this] {
    if (auto path = socket_path(context_->options.host))
      context_->path = *std::move(path); // which is removed at the end
    asio::co_spawn(context_->acceptor.get_executor(), accept_all(*context_), asio::detached);
  });
}

int server::listening_socket() const { return context_->acceptor.native_handle(); }

std::string server::describe_self() const { return describe_models(context_->engine); }

void server::give_to(std::shared_ptr<control_peer> next, std::string_view description,
                     std::chrono::milliseconds grace) {
  auto who = successor_of(std::move(next), description);
  if (!who.same_program)
    context_->log->say(log_level::info, "replaced",
                       "by another build of the program, whose answers may differ: what runs ends here");
  context_->set_next(std::move(who));
  asio::post(context_->acceptor.get_executor(), [this, grace] {
    context_->replaced = true;
    boost::system::error_code ec;
    context_->acceptor.close(ec); // the other process has it, too
    context_->path.clear();
    start_draining(*context_, grace);
  });
}

void server::take(const std::string& message, descriptor socket) {
  asio::post(context_->acceptor.get_executor(),
             [this, message, taken = std::make_shared<descriptor>(std::move(socket))] {
               take_connection(*context_, message, *taken);
             });
}

void server::check(const server_options& next) const {
  const live_settings live(next, {});
  if ((live.tls == nullptr) != (context_->live.get()->tls == nullptr))
    throw failure(errc::bad_request, "TLS is begun or given up by a restart only (--tls-cert)");
}

void server::reload(const server_options& next) {
  check(next);
  live_settings live(next, {});
  context_->keys.replace(next.api_keys, next.key_file, [&](bool open) {
    if (open)
      live.hosts = known_hosts(context_->address, context_->options.host, next.allowed_hosts);
  });
  context_->live.set(std::move(live));
  tell_of_identity(*context_);
  context_->quotas.limit(next.max_requests_per_key);
}

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
      helpers.emplace_back([this] {
        name_thread("http");
        serve(*context_);
      });
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
  asio::post(context_->acceptor.get_executor(),
             [this] { start_draining(*context_, context_->live.get()->stop_grace); });
}

void server::stop_now() {
  asio::post(context_->acceptor.get_executor(), [this] {
    start_draining(*context_, context_->live.get()->stop_grace);
    cut_all(*context_);
  });
}

} // namespace troupe
