// One HTTP connection: bytes in, replies out, every wait with a time limit. Runs only on the connection's strand.
#pragma once

#include "api/http/answer_budget.hpp"
#include "api/http/byte_stream.hpp"
#include "api/http/request_scope.hpp"
#include "api/server/figures/request_record.hpp"
#include "api/server/server_context.hpp"
#include "api/server/wire/reply.hpp"

#include <boost/beast/core/flat_buffer.hpp>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// The properties of a request that decide how its answer is written.
struct answer_form {
  unsigned version = 11;
  bool head = false;
  bool keep_alive = true;
  error_writer error_format = nullptr;
  /// CORS headers.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string accept = {}, last_event_id = {}; // the request's headers
};

/// The error of an answer that finds no room among those under way.
error answers_full(const answer_budget& budget);

class connection : public std::enable_shared_from_this<connection> {
public:
  connection(byte_stream bytes, server_context& context);

  /// Writes a whole response, or a 503 if there is no room for it among the answers under way. Throws system_error if
  /// the client is gone, or reads so slowly that it has lost its place.
  asio::awaitable<void> send(const reply& what, const answer_form& form);

  /// A response of unknown length: chunked, or with HTTP/1.0 delimited by the end of the connection.
  asio::awaitable<void> start_stream(std::string_view content_type, const answer_form& form);
  asio::awaitable<void> stream(std::string_view data, const answer_form& form);
  /// A response whose head another process has sent.
  void continue_stream(std::string_view content_type, const answer_form& form);
  asio::awaitable<void> end_stream(const answer_form& form);

  asio::awaitable<void> send_continue();

  /// Reads ahead into the buffer, for later requests, until the client is gone. Bytes beyond the buffer's limit are
  /// dropped, and no further request is read then; nor from a client that has shut down its sending side, which still
  /// gets its answer. Throws only when cancelled.
  asio::awaitable<void> watch();

  /// Until end_record(), answers carry this request's id and count in its log line.
  request_record& begin_record(std::string id, std::string route);
  request_record& record() { return *record_; }
  bool has_record() const { return record_.has_value(); }
  void end_record();
  /// A copy for who ends the request in this connection's place; end_record() writes nothing then.
  request_record lend_record();

  /// Runs `work`, which answers a request, and watches the client meanwhile: when the client leaves, `scope` is
  /// abandoned and `work` cancelled. Returns the result of `work`, or false if it threw or was cancelled.
  /// With HTTP/1.0 (`version` 10) the end of a client's input counts as its leave.
  asio::awaitable<bool> attend(request_scope& scope, unsigned version, asio::awaitable<bool> work);

  /// Another process goes on with the connection: attend() ends without a farewell.
  void moves() { moves_ = true; }
  void stays() { moves_ = false; }
  /// The connection is another process's.
  void let_go();

  /// With TLS, tells a client whose answer ends with the connection that it is whole.
  asio::awaitable<void> say_end();

  /// Lets the client read its answer: closing a socket with unread input would reset the connection.
  asio::awaitable<void> linger();

  /// What the answer to the current request takes.
  const std::shared_ptr<answer_budget::account>& account();

  /// Sets the deadline: waits on the socket fail after `limit`.
  void set_deadline(std::chrono::milliseconds limit);
  void clear_deadline();
  bool timed_out() const { return timed_out_; }
  void close();

  /// Whether the connection ends behind the request that it has: nobody takes it over.
  bool closes() const;

  /// Whether the last answer said that the connection may serve another request.
  bool keeps_alive() const { return keep_alive_; }

  byte_stream& bytes() { return bytes_; }
  boost::beast::flat_buffer& buffer() { return buffer_; }

private:
  asio::awaitable<void> write_response(const reply& what, const answer_form& form);
  asio::awaitable<void> write(std::string_view bytes);
  asio::awaitable<void> wait_until_gone();
  template <class Buffers>
  asio::awaitable<void> write_all(Buffers buffers);

  byte_stream bytes_;
  server_context& context_;
  asio::steady_timer deadline_;
  std::optional<request_record> record_;
  std::shared_ptr<answer_budget::account> account_;
  /// Bounded, because a parser may ask for any number of bytes ahead.
  boost::beast::flat_buffer buffer_;
  std::uint64_t epoch_ = 0;
  bool timed_out_ = false;
  bool record_lent_ = false;
  bool moves_ = false;
  /// No further request can be read: the client sent more ahead than is kept, or has shut down its sending side.
  bool last_ = false;
  bool keep_alive_ = true;
  bool may_probe_ = false;
  bool writing_ = false;
  std::string_view probe_; // what may be sent between two writes, and clients skip; empty: nothing
};

} // namespace troupe
