// An HTTP client for downloads: one request at a time on the caller's thread, over TLS where the address says so,
// through proxies, following redirects. Answers come in pieces, so that their size does not matter.
#pragma once

#include "api/hub/url.hpp"
#include "runtime/support/error.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace troupe::hub {

/// The connection broke, or nobody answered: trying again may help.
class connection_failure : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

struct request {
  std::string address;
  bool head = false;
  std::string token = {};                           // for the origin of `address`, and never for another; empty: none
  std::optional<std::uint64_t> from = std::nullopt; // asks for the bytes from there on
};

struct response_head {
  int status = 0;
  std::map<std::string, std::string> fields; // names in small letters; of redirects, those that came first
  std::string address;                       // that answered, without its query, which may hold a secret

  /// Empty without such a field.
  std::string_view field(std::string_view name) const;
};

struct response_sink {
  /// Called once, before the body. False: the body is not read.
  std::function<bool(const response_head&)> head;
  std::function<void(std::string_view)> body;
};

struct fetch_limits {
  std::chrono::seconds idle{30}; // without a byte
  int redirects = 10;
};

/// Redirects are followed, but not from HTTPS to HTTP; of HEAD only within the origin, where they end in status 200.
/// What the sink's functions throw ends the request. Throws connection_failure, and failure(bad_request | unavailable)
/// for what trying again does not mend.
void fetch(const request& what, const response_sink& to, const fetch_limits& limits);

/// The proxy that the environment names for an address: $https_proxy, $http_proxy (or $all_proxy), unless $no_proxy
/// names the host; capitals will do. Throws failure(bad_request | unsupported).
std::optional<url> proxy_for(const url& target);

} // namespace troupe::hub
