// Checks the host, target and length of a request's head. Ambiguous ones are refused: if a proxy read them differently,
// one client's bytes could become another client's request. Pure functions, any thread.
#pragma once

#include "runtime/support/error.hpp"

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>

#include <optional>
#include <string_view>

namespace troupe {

/// The parts of "name:8080" or "[::1]:8080". The name has no brackets; the port may be empty.
struct authority {
  std::string_view host;
  std::string_view port;
};

/// Nothing if the text is not an authority, has an empty name or contains a user.
std::optional<authority> parse_authority(std::string_view text);

struct request_target {
  std::string_view path; // with the query; "*" for a server-wide OPTIONS
  std::optional<authority> host;
};

/// Returns views into `head`. Throws failure(bad_request) if the head is ambiguous about the target, the host or the
/// length of the body.
request_target read_target(const boost::beast::http::request_header<>& head);

} // namespace troupe
