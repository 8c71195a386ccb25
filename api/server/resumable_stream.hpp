// Streams that outlive their connections, for clients that come back within a time (server_options::resume_window): a
// coroutine makes each, on the strand of the connection that asked for it, and connections send what it has made.
#pragma once

#include "api/record/recorder.hpp"
#include "api/server/connection.hpp"
#include "api/server/request_table.hpp"
#include "api/server/resume/stream_journal.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

namespace troupe {

/// A parsed request with `"stream": true`, and what its connection leaves to it.
struct stream_start {
  generation_job job;
  std::shared_ptr<const void> quota;
  std::shared_ptr<request_entry> entry;
  request_record record;
  std::size_t owner = 0;
  std::string client;
  recorder::request_ptr recorded;
};

/// Whether a job's stream may go on without its connection.
bool may_resume(const server_context& context, const generation_job& job);

/// Submits the request and makes its stream from now on.
std::shared_ptr<stream_journal> start_resumable(server_context& context, asio::any_io_executor strand,
                                                stream_start what);

/// Sends what follows event `after`, until the stream's end. Where `begun`, the answer's head has been sent. Returns
/// whether the connection can be used for another request. `scope` is the connection's.
asio::awaitable<bool> send_stream(connection& link, request_scope& scope, std::shared_ptr<stream_journal> journal,
                                  std::uint64_t after, answer_form form, bool begun = false);

/// The number of an event that a client names in `field`. Throws failure.
std::uint64_t event_number(std::string_view text, const char* field);

/// Answers a client that comes back for the stream `id`. It names the last event that it has in Last-Event-ID or in the
/// query, as `after` or, in OpenAI's way, as the sequence number `starting_after`.
asio::awaitable<bool> resume_stream(server_context& context, connection& link, request_scope& scope,
                                    std::string_view id, std::string_view query, answer_form form);

} // namespace troupe
