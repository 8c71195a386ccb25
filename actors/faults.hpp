// Why an actor died, in a form that its supervisor can read: an exception becomes a caf::error with a sentence and
// whether a restart can help.
#pragma once

#include "runtime/support/error.hpp"

#include <caf/error.hpp>

#include <exception>

namespace caf {
class actor_system;
}

namespace troupe {

/// An exception of a handler or constructor, as the error that a client receives.
error error_of(const std::exception_ptr& thrown) noexcept;

/// The exception as an exit reason; empty if there is no memory for one. `at_work`: a handler threw it.
caf::error exit_reason_of(const std::exception_ptr& thrown, bool at_work = true) noexcept;

struct fault {
  error why;
  bool recoverable = true; // false: the device's context is lost, and the weights with it
  bool at_work = true;     // false: it could not start, or was ended from outside, which no request can cause
  bool starting = false;   // it could not start
};

/// Reads any exit reason, CAF's own included.
fault fault_of(const caf::error& reason, const caf::actor_system& system);

} // namespace troupe
