// Answers GET /debug/trace: writes the next steps as they end. It keeps only what the client is slow to read, and drops
// the oldest of that. Runs within its connection's coroutine; workers format what came.
#pragma once

#include "api/server/connection.hpp"

#include <string_view>

namespace troupe {

/// Answers the request. `query`: "?seconds=3"; empty: the default. Returns whether the connection can be used for
/// another request.
asio::awaitable<bool> trace_steps(server_context& context, connection& link, const request_scope& scope,
                                  std::string_view query, answer_form form);

} // namespace troupe
