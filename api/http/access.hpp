// Access control: bearer tokens, browser origins and the hosts that requests name. Pure functions over configured
// lists; any thread.
#pragma once

#include <boost/asio/ip/address.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Compares in a time that depends only on the lengths.
bool same_in_constant_time(std::string_view a, std::string_view b);

/// The token of an `Authorization: Bearer` header, if it is one.
std::optional<std::string_view> bearer_token(std::string_view authorization);

/// The value of Access-Control-Allow-Origin, or nothing if the origin is not allowed. "*" in the list allows all.
std::optional<std::string> allowed_origin(const std::vector<std::string>& origins, std::string_view origin);

/// The hosts that a request may name. Guards against DNS rebinding: a page whose name was made to resolve to this
/// machine has the server's origin for its browser, but names a host that is not the server's.
class known_hosts {
public:
  /// Allows every host.
  known_hosts() = default;
  /// Allows the names that lead to `address` without foreign DNS: `host` as configured, localhost, this machine's name,
  /// and numeric addresses (only loopback ones if `address` is). `more` adds names; "*" allows all. Throws
  /// failure(bad_request) if an entry is not a host name.
  known_hosts(const boost::asio::ip::address& address, std::string_view host, const std::vector<std::string>& more);

  /// `host` has neither port nor brackets.
  bool allow(std::string_view host) const;

private:
  bool all_ = true;
  bool loopback_ = false;
  std::vector<std::string> names_;
};

/// Whether a page of `origin` was served by the `host` that it now calls.
bool is_same_origin(std::string_view origin, std::string_view host);

} // namespace troupe
