// One client's HTTP connection from accept to close: reads requests, refuses invalid ones and hands the others to their
// endpoint. Runs as one coroutine on a strand of its own.
#pragma once

#include "api/http/byte_stream.hpp"
#include "api/server/server_context.hpp"

#include <memory>

namespace troupe {

/// Serves a client until its connection is closed. The executor of `bytes` must be a strand. `first`: a request that
/// another process has begun to answer there; null: none.
void start_http_session(server_context& context, byte_stream bytes, std::unique_ptr<moving_request> first = nullptr);

} // namespace troupe
