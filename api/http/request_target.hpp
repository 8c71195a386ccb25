// What a request's head says of whom it is for and where it ends, checked before anything acts on it: an intermediary
// that reads either otherwise would take one client's bytes for another's request. Pure functions, any thread.
#pragma once

#include "runtime/support/error.hpp"

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>

#include <optional>
#include <string_view>

namespace troupe {

/// "name:8080" or "[::1]:8080" in parts. The name is without brackets; the port may be empty.
struct authority {
  std::string_view host;
  std::string_view port;
};

/// Nothing where the text is no authority, or has an empty name or a user in it.
std::optional<authority> parse_authority(std::string_view text);

struct request_target {
  std::string_view path; // with the query; "*" where OPTIONS asks about the server
  std::optional<authority> host;
};

/// Views into `head`. Throws failure(bad_request) where the head is ambiguous about the target, the host or the length
/// of the body.
request_target read_target(const boost::beast::http::request_header<>& head);

} // namespace troupe
