// The line to one client: passes events to its sink and guarantees a last one, however the request ends. Created by the
// submitter, then used by the request actor alone. An actor hears of the end even where there is no memory; a function
// then hears of it later.
#pragma once

#include "actors/messages.hpp"

#include <caf/mailbox_element.hpp>

#include <exception>
#include <memory>

namespace troupe {

class client_line {
public:
  /// `of`: whoever calls unwoken::forget(of) before the function is gone.
  explicit client_line(event_sink&& sink, const void* of = nullptr);
  /// Sends events to an actor, numbered `id`.
  client_line(const client_actor& client, std::uint64_t id);
  client_line(client_line&& other) noexcept;
  /// Reports the request as lost unless it has ended.
  ~client_line();

  /// Does nothing once the line is closed. If the sink throws, so does this, and the line stays open even after a last
  /// event.
  void send(event e);

  /// Ends the request with an error unless it has ended. A function that has no memory for it is called again later, on
  /// any thread of actors or by unwoken::forget; its other exceptions are dropped. An actor then hears that the request is
  /// lost.
  void close(error why) noexcept;
  void close(const std::exception_ptr& thrown) noexcept;
  void close() noexcept;

  /// The actor that receives the events, whose end ends the request; null if a function does.
  const client_actor& client() const { return client_; }

private:
  class far_end;
  std::unique_ptr<far_end> end_; // null once the line is closed
  client_actor client_;
  caf::mailbox_element_ptr farewell_; // for an actor, until it is sent
};

using client_line_ptr = std::shared_ptr<client_line>;

} // namespace troupe
