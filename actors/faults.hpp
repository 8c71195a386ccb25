// Why an actor died, as a reason that its supervisor can read: what was thrown becomes a caf::error that carries a sentence
// and whether it makes sense to start anew.
#pragma once

#include "runtime/support/error.hpp"

#include <caf/error.hpp>

#include <exception>

namespace caf {
class actor_system;
}

namespace troupe {

/// What a handler or a constructor threw, as a client hears of it.
error error_of(const std::exception_ptr& thrown) noexcept;

/// The same as an exit reason; none where there is no memory for one.
caf::error exit_reason_of(const std::exception_ptr& thrown) noexcept;

struct fault {
  error why;
  bool recoverable = true; // false: the device's context is lost, and with it what the weights were in
};

/// Reads an exit reason, of whatever kind.
fault fault_of(const caf::error& reason, const caf::actor_system& system);

} // namespace troupe
