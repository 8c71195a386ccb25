// A whole answer to one request, before it is written. Knows no sockets.
#pragma once

#include "runtime/support/error.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

struct reply {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  /// An error's code and field, for the log.
  std::string_view code{};
  std::string param{};
  std::string complaint{}; // its sentence
  /// What of the request is left out, and why: sentences for the log and a header, few.
  std::vector<std::string> notes{};

  static reply json(std::string body, unsigned status = 200);
  static reply text(std::string body);
  /// Adds Retry-After or WWW-Authenticate if the status requires it.
  static reply of(const error& what);

  /// In seconds; nothing for answers that another try does not change.
  static std::optional<int> retry_after(const error& what);
};

/// Makes the body of an error in an API's own format; null stands for OpenAI's. The request's id is that of the log.
using error_writer = std::string (*)(const reply& why, std::string_view request_id);

/// The exception in flight as an error. For catch (...) at the edge of a worker.
error caught_error();

} // namespace troupe
