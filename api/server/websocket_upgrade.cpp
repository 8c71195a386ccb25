#include "api/server/websocket_upgrade.hpp"

#include "api/http/query.hpp"
#include "api/server/request_checks.hpp"
#include "api/server/responses_socket.hpp"
#include "api/server/resumable_stream.hpp"
#include "runtime/support/text/percent_encoding.hpp"

#include <boost/beast/websocket/rfc6455.hpp>

#include <optional>
#include <utility>

namespace troupe {

asio::awaitable<bool> websocket_upgrade::answer(connection& link, const key_ring::owner& caller, request_parser& parser,
                                                upgraded kind, std::string query, answer_form form, bool stops) {
  if (!boost::beast::websocket::is_upgrade(parser.get()) || link.buffer().size() > 0) {
    auto why_not = refusal(426, "this endpoint is for WebSockets only");
    why_not.headers.emplace_back("Upgrade", "websocket");
    co_await link.send(why_not, form);
    co_return form.keep_alive;
  }
  if (const auto session = query_parameter(query, "resume"); session && !kind.to_responses) {
    std::optional<error> refused;
    try {
      come_back(link, caller, parser, *session, query);
      co_return false;
    } catch (const failure& f) {
      refused = f.what_failed();
    }
    co_await link.send(reply::of(*refused), form);
    co_return form.keep_alive;
  }
  context_.counted.answered(101);
  link.record().answered(101);
  auto first = std::make_unique<accepted>(accepted{std::make_unique<const request_head>(parser.release()),
                                                   link.record().id(), context_.client_of(caller, link.bytes()),
                                                   link.record().from()});
  socket_ = kind.to_responses ? make_responses_socket(context_, std::move(link.bytes()))
                              : make_websocket_session(context_, std::move(link.bytes()),
                                                       percent_decoded(query_parameter(query, "model").value_or("")));
  first_ = std::move(first); // once there was memory for both
  if (stops)
    socket_->drain();
  co_return false;
}

/// Gives this connection to the WebSocket that its client had before. Throws failure if that is not there.
void websocket_upgrade::come_back(connection& link, const key_ring::owner& caller, request_parser& parser,
                                  std::string_view session, std::string_view query) {
  const auto journal = context_.streams.find(caller.number, context_.client_of(caller, link.bytes()), session, true);
  const auto its = context_.sockets.find(std::string(session));
  if (!its || !link.bytes().is_socket())
    throw failure(errc::not_found, "there is no WebSocket session of this id, or not any more", "resume");
  const auto after = event_number(query_parameter(query, "after").value_or("0"), "after");
  journal->check(after);
  context_.counted.answered(101);
  link.record().answered(101);
  auto id = link.record().id();
  its->come_back({link.bytes().move_to(its->executor()), std::make_unique<const request_head>(parser.release()),
                  std::move(id), after});
}

asio::awaitable<void> websocket_upgrade::run(const key_ring::owner& caller) {
  const auto its = std::move(first_);
  return socket_->run(std::move(its->head), std::move(its->id), caller, std::move(its->client), std::move(its->from));
}

} // namespace troupe
