// One generation_job over HTTP: parses the request, submits it, and writes the answer whole or as a stream while
// watching for the client to leave. Runs within its connection's coroutine.
#pragma once

#include "api/server/connection.hpp"
#include "api/server/endpoint.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

class request_set;

/// Answers one POST to an endpoint that makes generations. Returns whether the connection can be used for another
/// request.
asio::awaitable<bool> exchange_generation(server_context& context, connection& link, request_scope& scope,
                                          generated how, held_text body, answer_form form);

/// The end user that the client names in `user`, `safety_identifier` or `metadata.user_id`, cut short for the log.
/// Empty if it names none.
std::string requested_user(const field_reader& body);

/// The error of a generation that was cancelled, which these clients cannot do. `filtered`: the policy ended it, which is
/// none.
std::optional<error> interruption(const done_event& done, bool filtered);

/// Feeds the requests' events to the writer. A stream's text is appended to `out`; `open` counts the requests that have
/// not ended. Returns the first error.
std::optional<error> write_events(request_set& requests, answer_writer& writer, request_record& record,
                                  std::size_t& open, std::string& out);

/// How a stream ends that has told nothing but comments.
std::string failed_event(const error& why, const answer_form& form, std::string_view id);

} // namespace troupe
