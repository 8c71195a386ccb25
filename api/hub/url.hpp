// Addresses of HTTP, as far as a client needs them. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace troupe::hub {

struct url {
  bool tls = true;
  std::string user;       // "name:password", decoded; mostly empty
  std::string host, port; // of an IPv6 address without brackets
  std::string target;     // begins with a slash

  /// "https://host:port", without a default port.
  std::string origin() const;
  /// The value of the Host field.
  std::string authority() const;
};

/// Throws failure(bad_request) unless `text` is an address of HTTP or HTTPS.
url parse_url(std::string_view text);

/// What `location`, of a redirect, means behind `base`. Throws as parse_url.
url resolve(const url& base, std::string_view location);

/// `text` for a path: whatever may not be in one is escaped, but slashes are kept.
std::string escaped_path(std::string_view text);

} // namespace troupe::hub
