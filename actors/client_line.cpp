#include "actors/client_line.hpp"

#include "actors/faults.hpp"

namespace troupe {

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
  } catch (...) { // it was its last chance
  }
}

void client_line::close(const std::exception_ptr& thrown) noexcept { close(error_of(thrown)); }

void client_line::close() noexcept {
  close(error{errc::internal, "request lost", {}}); // too short to need memory
}

} // namespace troupe
