#include "actors/client_line.hpp"

#include "actors/faults.hpp"

#include <caf/send.hpp>

namespace troupe {

client_line::client_line(const client_actor& client, std::uint64_t id)
  : sink_([client, id](event e) {
      caf::anon_send(client, event_atom::value, id, std::make_shared<const event>(std::move(e)));
    }),
    client_(client) {}

void client_line::send(event e) {
  if (closed_)
    return;
  const bool last = !std::holds_alternative<token_event>(e);
  sink_(std::move(e));
  closed_ = last;
}

void client_line::close(error why) noexcept {
  if (std::exchange(closed_, true))
    return;
  try {
    sink_(std::move(why));
  } catch (...) { // there is no one left to tell
  }
}

void client_line::close(const std::exception_ptr& thrown) noexcept { close(error_of(thrown)); }

void client_line::close() noexcept {
  close(error{errc::internal, "request lost", {}}); // too short to need memory
}

} // namespace troupe
