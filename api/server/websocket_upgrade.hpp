// How an HTTP connection becomes a WebSocket: answers the request that asks for it, makes the session that serves it or
// finds the one that its client had before. Belongs to an http_session and is used on its strand only.
#pragma once

#include "api/http/budgeted_body.hpp"
#include "api/http/key_ring.hpp"
#include "api/server/connection.hpp"
#include "api/server/endpoint.hpp"
#include "api/server/websocket_session.hpp"

#include <boost/beast/http/parser.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace troupe {

class websocket_upgrade {
public:
  using request_parser = boost::beast::http::request_parser<budgeted_body>;

  explicit websocket_upgrade(server_context& context) : context_(context) {}

  /// Answers a request, unless a WebSocket takes the connection's bytes. Whether the connection can be used for another
  /// request. `stops`: nothing new may begin.
  asio::awaitable<bool> answer(connection& link, const key_ring::owner& caller, request_parser& parser, upgraded kind,
                               std::string query, answer_form form, bool stops);

  /// A WebSocket was made here; it is to be run once the connection is let go.
  bool is_due() const { return first_ != nullptr; }
  /// Serves it. It may be idle for long, so this has no frame of its own and keeps nothing of the request.
  asio::awaitable<void> run(const key_ring::owner& caller);
  /// Null until there is one.
  websocket_endpoint* socket() const { return socket_.get(); }

private:
  using request_head = boost::beast::http::request<budgeted_body>;

  /// What the WebSocket is to accept.
  struct accepted {
    std::unique_ptr<const request_head> head;
    std::string id;
    std::string client;
    request_record::origin from;
  };

  void come_back(connection& link, const key_ring::owner& caller, request_parser& parser, std::string_view session,
                 std::string_view query);

  server_context& context_;
  std::shared_ptr<websocket_endpoint> socket_;
  std::unique_ptr<accepted> first_;
};

} // namespace troupe
