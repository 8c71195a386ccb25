// Who may ask: API keys, browsers' origins, and the hosts that requests name. Pure functions over configured lists; any
// thread.
#pragma once

#include <boost/asio/ip/address.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Whether both are the same, in a time that depends on their lengths alone.
bool same_in_constant_time(std::string_view a, std::string_view b);

/// Which of the keys an `Authorization` header holds as its bearer token; nothing where it holds none of them. 0 where no
/// keys are configured.
std::optional<std::size_t> authorized_key(const std::vector<std::string>& keys, std::string_view authorization);

/// The value for Access-Control-Allow-Origin, or nothing where that origin is not allowed. "*" in the list allows all.
std::optional<std::string> allowed_origin(const std::vector<std::string>& origins, std::string_view origin);

/// The hosts that a request may name. A page whose own name was made to lead to this machine (DNS rebinding) is of one
/// origin with the server for its browser, but still names a host that is none of the server's.
class known_hosts {
public:
  /// Allows all.
  known_hosts() = default;
  /// What leads to `address` without a stranger's help: `host` as it was configured, localhost, this machine's own
  /// name, and addresses, on a loopback address only such. `more` are names besides; "*" allows all. Throws
  /// failure(bad_request) for one that is no name.
  known_hosts(const boost::asio::ip::address& address, std::string_view host, const std::vector<std::string>& more);

  /// `host` is without port and brackets.
  bool allow(std::string_view host) const;

private:
  bool all_ = true;
  bool loopback_ = false;
  std::vector<std::string> names_;
};

/// Whether a page of `origin` was served under the very `host` that it now calls.
bool is_same_origin(std::string_view origin, std::string_view host);

} // namespace troupe
