// Errors of the whole runtime: one code, one sentence and, if any, the request field at fault.
// Carried as values between actors; thrown as `failure` inside loaders and parsers.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace troupe {

enum class errc : std::uint8_t {
  bad_file,      // a file of a checkpoint is malformed, truncated or contradicts another
  unsupported,   // well-formed, but names something this program does not implement
  bad_request,   // a request field is missing, of the wrong type or out of range
  not_found,     // no such model, file or request
  unauthorized,  // missing or wrong API key
  too_large,     // a body or frame over the configured limit
  overloaded,    // the queue is full; try again later
  unavailable,   // still loading, draining or stopped
  cancelled,     // the client went away or asked for it
  timeout,       // the request took longer than it may
  out_of_memory, // weights, KV cache or a buffer cannot be allocated
  device,        // a device reported a fault
  internal,      // a bug
};

/// One sentence a user can act on. `param` names the request field at fault (OpenAI's `error.param`), if any.
struct error {
  errc code = errc::internal;
  std::string message;
  std::string param;
};

/// An `error` on its way up a call stack. Caught at the edge of an actor or of the command line, never crosses one.
class failure : public std::runtime_error {
public:
  failure(errc code, std::string message, std::string param = {})
    : std::runtime_error(message), error_{code, std::move(message), std::move(param)} {}

  const error& what_failed() const noexcept { return error_; }

private:
  error error_;
};

} // namespace troupe
