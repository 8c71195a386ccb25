// One client's HTTP connection from accept to close: reads requests, refuses what may not be, hands the rest to the
// endpoint. Runs as one coroutine on a strand of its own.
#pragma once

#include "api/server_context.hpp"

namespace troupe {

/// Serves `socket` until it is closed. The socket's executor must be a strand.
void start_http_session(server_context& context, tcp::socket socket);

} // namespace troupe
