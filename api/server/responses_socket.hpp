// A WebSocket connection to /v1/responses, as OpenAI has it. Responses run one after the other, or side by side on
// lanes that their `stream_id`s name; the events of a stream are messages. A response that is not stored can be
// continued on the connection that it came from. Runs within the coroutine of the HTTP connection that was upgraded, on
// the same strand.
#pragma once

#include "api/server/websocket_session.hpp"

#include <memory>

namespace troupe {

std::shared_ptr<websocket_endpoint> make_responses_socket(server_context& context, byte_stream bytes);

} // namespace troupe
