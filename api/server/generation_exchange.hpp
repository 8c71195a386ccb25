// One generation_job over HTTP: parses the request, submits it, and writes the answer whole or as a stream while watching
// for the client to leave. Runs within its connection's coroutine.
#pragma once

#include "api/server/connection.hpp"

namespace troupe {

/// Answers one POST to an endpoint that makes jobs. Returns whether the connection can be used for another request.
asio::awaitable<bool> exchange_generation(server_context& context, connection& link, request_scope& scope, endpoint to,
                                          held_text body, answer_form form);

} // namespace troupe
