// The way back to one client: hands events to its sink and sees to it that a last one always comes, whatever becomes of
// the request. Made by whoever submits, then used by the request's actor alone; it needs no memory to say that there is
// none.
#pragma once

#include "actors/messages.hpp"

#include <exception>
#include <utility>

namespace troupe {

class client_line {
public:
  explicit client_line(event_sink&& sink) : sink_(std::move(sink)) {}
  client_line(client_line&& other) noexcept
    : sink_(std::move(other.sink_)), closed_(std::exchange(other.closed_, true)) {}
  /// Where nothing has ended the request, its client hears that it was lost.
  ~client_line() { close(); }

  /// Throws what the sink throws; the line is open then, be it the last event or not. Nothing once the line is closed.
  void send(event e);

  /// Ends the request by an error, unless it has ended. What the sink throws now is lost.
  void close(error why) noexcept;
  void close(const std::exception_ptr& thrown) noexcept;
  void close() noexcept;

private:
  event_sink sink_;
  bool closed_ = false;
};

using client_line_ptr = std::shared_ptr<client_line>;

} // namespace troupe
