#include "actors/client_line.hpp"

#include "actors/faults.hpp"

#include <caf/actor_cast.hpp>
#include <caf/send.hpp>

namespace troupe {

namespace {

event lost() { return error{errc::internal, "request lost", {}}; } // too short to need memory

} // namespace

client_line::client_line(const client_actor& client, std::uint64_t id)
  : sink_([client, id](event e) {
      caf::anon_send(client, event_atom::value, id, std::make_shared<const event>(std::move(e)));
    }),
    client_(client),
    farewell_(caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, event_atom::value, id,
                                        std::make_shared<const event>(lost()))) {}

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
  } catch (...) { // a function has nobody left to tell
    if (farewell_)
      caf::actor_cast<caf::abstract_actor*>(client_)->enqueue(std::move(farewell_), nullptr);
  }
}

void client_line::close(const std::exception_ptr& thrown) noexcept { close(error_of(thrown)); }

void client_line::close() noexcept { close(std::get<error>(lost())); }

} // namespace troupe
