// Decisions that need only a request's header: access by host, origin and key, CORS, the body's type, and the replies
// to what is not HTTP. Pure functions; called on the connection's strand.
#pragma once

#include "api/http/access.hpp"
#include "api/http/key_ring.hpp"
#include "api/http/request_target.hpp"
#include "api/server/endpoint.hpp"
#include "api/server/live_settings.hpp"

#include <boost/beast/core/string.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

inline std::string_view view(boost::beast::string_view s) { return {s.data(), s.size()}; }

using header_fields = std::vector<std::pair<std::string, std::string>>;

/// An error reply with a status that no error code maps to.
reply refusal(unsigned status, const std::string& why);

/// The reply to a request that could not be read, or nothing if the client is gone.
std::optional<reply> reply_to_unreadable(boost::system::error_code ec, std::size_t max_body_bytes);

/// The CORS headers of every answer to `head`.
header_fields cors_headers(const boost::beast::http::request_header<>& head, const live_settings& live);

struct header_verdict {
  std::optional<reply> answer; // a refusal, or the answer to a preflight; nothing if the request may proceed
  key_ring::owner caller{};    // whose key it has
};

header_verdict check_header(const boost::beast::http::request_header<>& head, const request_target& target,
                            const std::variant<found_endpoint, reply>& found, const live_settings& live,
                            key_ring& keys);

} // namespace troupe
