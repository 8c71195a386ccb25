// One generation over HTTP: parses the request, submits it, and writes the answer whole or as server-sent events while
// watching for the client to leave. Runs within its connection's coroutine.
#pragma once

#include "api/openai/openai_request.hpp"
#include "api/server/connection.hpp"

namespace troupe {

/// Answers one POST. Returns whether the connection can be used for another request.
asio::awaitable<bool> exchange_generation(server_context& context, connection& link, request_scope& scope,
                                          dialect format, held_text body, answer_form form);

} // namespace troupe
