// Errors of the whole runtime: one code, one sentence and, if any, the request field at fault.
// Carried as values between actors; thrown as `failure` inside loaders and parsers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

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
  poisoned,      // the engine fails each time that it runs this request
  internal,      // a bug
};

/// One sentence a user can act on. `param` names the request field at fault (OpenAI's `error.param`), if any.
struct error {
  errc code = errc::internal;
  std::string message;
  std::string param;
  // Set if it is refused because it would wait for too long, in milliseconds; else 0:
  double wait_ms = 0;  // that it would have waited
  double retry_ms = 0; // after which it would wait no longer than it may
};

/// An `error` on its way up a call stack. Caught at the edge of an actor or of the command line, never crosses one.
class failure : public std::runtime_error {
public:
  /// Long texts are cut: messages quote what clients and files say, which may be of any length.
  failure(errc code, std::string message, std::string param = {})
    : failure(
        error{code, clipped(std::move(message), most_message_bytes), clipped(std::move(param), most_param_bytes)}) {}

  /// With all that it says; of a text of ours, which is short.
  explicit failure(error what) : std::runtime_error(what.message), error_(std::move(what)) {}

  static constexpr std::size_t most_message_bytes = 4096, most_param_bytes = 512;

  const error& what_failed() const noexcept { return error_; }

private:
  /// `text`, or its beginning in whole characters and "...", of at most so many bytes.
  static std::string clipped(std::string text, std::size_t most) {
    if (text.size() <= most)
      return text;
    auto end = most - 3;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
      --end;
    text.resize(end);
    text.shrink_to_fit();
    return text += "...";
  }

  error error_;
};

/// "`FIELD` WHY".
[[noreturn]] inline void refuse_field(const std::string& field, const std::string& why, errc code = errc::bad_request) {
  throw failure(code, '`' + field + "` " + why, field);
}

} // namespace troupe
