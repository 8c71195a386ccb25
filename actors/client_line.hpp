// The line to one client: passes events to its sink and guarantees a last one, however the request ends. Created by the
// submitter, then used by the request actor alone. Reporting that memory ran out needs no memory.
#pragma once

#include "actors/messages.hpp"

#include <caf/mailbox_element.hpp>

#include <exception>
#include <utility>

namespace troupe {

class client_line {
public:
  explicit client_line(event_sink&& sink) : sink_(std::move(sink)) {}
  /// Sends events to an actor, numbered `id`.
  client_line(const client_actor& client, std::uint64_t id);
  client_line(client_line&& other) noexcept
    : sink_(std::move(other.sink_)),
      client_(std::move(other.client_)),
      farewell_(std::move(other.farewell_)),
      closed_(std::exchange(other.closed_, true)) {}
  /// Reports the request as lost unless it has ended.
  ~client_line() { close(); }

  /// Does nothing once the line is closed. If the sink throws, so does this, and the line stays open even after a last
  /// event.
  void send(event e);

  /// Ends the request with an error unless it has ended. Exceptions of the sink are dropped.
  void close(error why) noexcept;
  void close(const std::exception_ptr& thrown) noexcept;
  void close() noexcept;

  /// The actor that receives the events, whose end ends the request; null if a function does.
  const client_actor& client() const { return client_; }

private:
  event_sink sink_;
  client_actor client_;
  caf::mailbox_element_ptr farewell_; // that the request is lost, for an actor, until it is sent
  bool closed_ = false;
};

using client_line_ptr = std::shared_ptr<client_line>;

} // namespace troupe
