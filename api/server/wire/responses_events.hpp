// The messages of a WebSocket to /v1/responses. Pure functions.
#pragma once

#include "runtime/support/error.hpp"
#include "runtime/support/json/json.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// `response.create`: its members are those of POST /v1/responses.
struct response_create {
  std::shared_ptr<const json::document> body;
  std::optional<std::string> stream_id; // of its lane
  std::optional<std::string> previous;  // the response that it continues
  bool generates = true;                // false: only the state is made
};

struct bad_response_event {
  std::optional<std::string> stream_id;
  error why;
};

/// Throws bad_response_event.
response_create parse_response_event(std::string_view text);

/// The events of a stream of server-sent ones, with their lane. The first tells `notes` as its `warnings`, as a frame of
/// /v1/ws does; they are taken.
std::vector<std::string> events_of_stream(std::string_view stream, const std::optional<std::string>& stream_id,
                                          std::vector<std::string>& notes);

std::string response_error_event(const error& why, const std::optional<std::string>& stream_id);

} // namespace troupe
