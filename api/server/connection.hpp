// One HTTP connection: bytes in, replies out, every wait with a time limit. Used on the connection's strand
// alone.
#pragma once

#include "api/http/byte_stream.hpp"
#include "api/http/request_scope.hpp"
#include "api/server/request_record.hpp"
#include "api/server/routes.hpp"
#include "api/server/server_context.hpp"

#include <boost/beast/core/flat_buffer.hpp>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// What of a request decides how its answer is written.
struct answer_form {
  unsigned version = 11;
  bool head = false;
  bool keep_alive = true;
  std::vector<std::pair<std::string, std::string>> headers; // CORS
};

class connection : public std::enable_shared_from_this<connection> {
public:
  connection(byte_stream bytes, server_context& context);

  /// Writes a whole response. Throws system_error where the client is gone.
  asio::awaitable<void> send(const reply& what, const answer_form& form);

  /// A response of unknown length: chunked, or for HTTP/1.0 up to the end of the connection.
  asio::awaitable<void> start_stream(std::string_view content_type, const answer_form& form);
  asio::awaitable<void> stream(std::string_view data, const answer_form& form);
  asio::awaitable<void> end_stream(const answer_form& form);

  asio::awaitable<void> send_continue();

  /// Reads ahead into the buffer, for requests to come, until the client is gone. What the buffer has no room for is
  /// dropped, and no request is read after it. Never throws but for cancellation.
  asio::awaitable<void> watch();

  /// From here on to end_record(), answers bear this request's id and count in its line of the log.
  request_record& begin_record(std::string id, std::string route);
  request_record& record() { return *record_; }
  bool has_record() const { return record_.has_value(); }
  void end_record();

  /// Does `work`, which answers a request, and watches meanwhile: once the client is gone, `scope` is abandoned and
  /// `work` cancelled. What work returned; false where it threw or was cancelled.
  asio::awaitable<bool> attend(request_scope& scope, asio::awaitable<bool> work);

  /// Lets the client read what it was sent before the socket is closed on bytes that nobody read.
  asio::awaitable<void> linger();

  /// From now on, waits on the socket end with an error after `limit`.
  void expect_within(std::chrono::milliseconds limit);
  void expect_no_more();
  bool timed_out() const { return timed_out_; }
  void close();

  byte_stream& bytes() { return bytes_; }
  boost::beast::flat_buffer& buffer() { return buffer_; }

private:
  asio::awaitable<void> write(std::string_view bytes);

  byte_stream bytes_;
  server_context& context_;
  asio::steady_timer deadline_;
  std::optional<request_record> record_;
  boost::beast::flat_buffer buffer_; // bounded: a parser may ask for any number of bytes ahead
  std::uint64_t epoch_ = 0;
  bool timed_out_ = false;
  bool overrun_ = false; // more was sent ahead than is kept: no further request can be read
};

} // namespace troupe
