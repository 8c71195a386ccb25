// GET /debug/trace over HTTP: the next steps, written as they end, so that nothing of them gathers but what the client
// is slow to read, of which the oldest are lost. Runs within its connection's coroutine; workers only write out what
// came.
#pragma once

#include "api/server/connection.hpp"

#include <string_view>

namespace troupe {

/// Answers the request. `query`: "?seconds=3"; empty: the default. Returns whether the connection can be used for
/// another request.
asio::awaitable<bool> trace_steps(server_context& context, connection& link, const request_scope& scope,
                                  std::string_view query, answer_form form);

} // namespace troupe
