// One generation_job over HTTP: parses the request, submits it, and writes the answer whole or as a stream while
// watching for the client to leave. Runs within its connection's coroutine.
#pragma once

#include "api/server/connection.hpp"
#include "api/server/endpoint.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class request_set;

/// How far a request is that may move to another process.
struct moving_progress {
  request_draws draws = {};
  std::shared_ptr<const std::vector<begun_sequence>> tokens =
    {};                               // that it has had elsewhere, or takes along; null: none
  std::chrono::milliseconds spent{0}; // elsewhere
  bool head_sent = false;             // of the answer
  bool moved = false;                 // its tokens were handed over
};

/// Answers one POST to an endpoint that makes generations. `begun`: what another process has done of it; null: nothing.
/// Where another takes this one's place, the request may go there with the connection, which is closed here then. Returns whether the connection can be used for another
/// request.
asio::awaitable<bool> exchange_generation(server_context& context, connection& link, request_scope& scope,
                                          generated how, held_text body, answer_form form,
                                          std::unique_ptr<moving_request> begun);

/// The end user that the client names in `user`, `safety_identifier` or `metadata.user_id`, cut short for the log.
/// Empty if it names none.
std::string requested_user(const field_reader& body);

/// The error of a generation that was cancelled, which these clients cannot do. `filtered`: the policy ended it, which is
/// none.
std::optional<error> interruption(const done_event& done, bool filtered);

/// Feeds the requests' events to the writer. A stream's text is appended to `out`; `open` counts the requests that have
/// not ended. What another process has written is not written again. Returns the first error. `its` is of a request that
/// may be handed over, and is told if it was.
std::optional<error> write_events(request_set& requests, answer_writer& writer, request_record& record,
                                  std::size_t& open, std::string& out, moving_progress* its = nullptr);

/// How a stream ends that has told nothing but comments.
std::string failed_event(const error& why, const answer_form& form, std::string_view id);

} // namespace troupe
