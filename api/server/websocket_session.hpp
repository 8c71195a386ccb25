// A WebSocket connection (/v1/ws): concurrent requests, their tokens as JSON frames. Runs within the coroutine of the
// HTTP connection that it was upgraded from, on the same strand.
#pragma once

#include "api/http/budgeted_body.hpp"
#include "api/http/byte_stream.hpp"
#include "api/server/figures/request_record.hpp"
#include "api/server/server_context.hpp"

#include <boost/beast/http/message.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

/// A client that has lost its WebSocket and comes back by another connection.
struct returning_client {
  byte_stream bytes; // of the session's executor
  std::unique_ptr<const boost::beast::http::request<budgeted_body>> head;
  std::string id;          // of the upgrade request
  std::uint64_t after = 0; // the last frame that it has
};

class websocket_endpoint : public session {
public:
  virtual asio::any_io_executor executor() = 0;
  /// Goes on with this client. Any thread.
  virtual void come_back(returning_client) {}

  /// Accepts the upgrade that `head` requests and serves until the connection is closed. `id` is the upgrade request's
  /// id, which the log lines of its frames share; `caller` is the owner of its API key, `client` who asks
  /// (server_context::client_of). Does not throw.
  virtual asio::awaitable<void> run(std::unique_ptr<const boost::beast::http::request<budgeted_body>> head,
                                    std::string id, key_ring::owner caller, std::string client,
                                    request_record::origin from) = 0;
};

/// `watched`: the model of whose engine a watch tells that names none.
std::shared_ptr<websocket_endpoint> make_websocket_session(server_context& context, byte_stream bytes,
                                                           std::string watched);

} // namespace troupe
