// One generation over HTTP: parse, submit, and write what comes, whole or as server-sent events, while watching whether
// the client is still there. Runs within its connection's coroutine.
#pragma once

#include "api/openai/openai_request.hpp"
#include "api/server/connection.hpp"

namespace troupe {

/// Answers one POST. Whether the connection can be used for another request.
asio::awaitable<bool> exchange_generation(server_context& context, connection& link, request_scope& scope,
                                          dialect speaks, held_text body, answer_form form);

} // namespace troupe
