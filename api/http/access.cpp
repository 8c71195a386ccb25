#include "api/http/access.hpp"

#include "api/http/request_target.hpp"
#include "runtime/support/text/utf8.hpp"

#include <boost/asio/ip/host_name.hpp>

#include <algorithm>

namespace troupe {

namespace {

bool is_loopback(const boost::asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6()).is_loopback();
  return address.is_loopback();
}

/// A host without brackets, or nothing if `text` is not a host.
std::optional<std::string> host_name(std::string_view text) {
  boost::system::error_code ec;
  boost::asio::ip::make_address_v6(text, ec);
  if (!ec)
    return std::string(text);
  const auto parsed = parse_authority(text);
  return parsed && parsed->port.empty() ? std::optional(std::string(parsed->host)) : std::nullopt;
}

} // namespace

bool same_in_constant_time(std::string_view a, std::string_view b) {
  volatile unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = difference | static_cast<unsigned char>(a[i] ^ (b.empty() ? '\0' : b[i % b.size()]));
  return difference == 0;
}

std::optional<std::string_view> bearer_token(std::string_view authorization) {
  constexpr std::string_view scheme = "bearer ";
  if (!boost::beast::iequals(authorization.substr(0, scheme.size()), scheme))
    return std::nullopt;
  auto token = authorization.substr(scheme.size());
  token.remove_prefix(std::min(token.find_first_not_of(' '), token.size()));
  return token;
}

std::optional<std::string> allowed_origin(const std::vector<std::string>& origins, std::string_view origin) {
  if (origin.empty())
    return std::nullopt;
  for (const auto& allowed : origins) {
    if (allowed == "*")
      return "*";
    if (boost::beast::iequals(allowed, origin))
      return std::string(origin);
  }
  return std::nullopt;
}

known_hosts::known_hosts(const boost::asio::ip::address& address, std::string_view host,
                         const std::vector<std::string>& more)
  : all_(false), loopback_(is_loopback(address)), names_{std::string(host), "localhost"} {
  boost::system::error_code ec;
  if (auto machine = boost::asio::ip::host_name(ec); !ec && !loopback_)
    names_.push_back(std::move(machine));
  for (const auto& one : more) {
    const auto name = host_name(one);
    if (one == "*")
      all_ = true;
    else if (name)
      names_.push_back(*name);
    else
      throw failure(errc::bad_request,
                    "an allowed host is a name or an address without a port, not `" + to_utf8(one) + '`');
  }
}

bool known_hosts::allow(std::string_view host) const {
  if (all_)
    return true;
  boost::system::error_code ec;
  const auto address = boost::asio::ip::make_address(host, ec);
  if (!ec && (!loopback_ || is_loopback(address)))
    return true;
  if (host.ends_with('.'))
    host.remove_suffix(1);
  return std::any_of(names_.begin(), names_.end(),
                     [&](const std::string& name) { return boost::beast::iequals(name, host); });
}

bool is_same_origin(std::string_view origin, std::string_view host) {
  const auto scheme = origin.find("://");
  return scheme != origin.npos && !host.empty() && boost::beast::iequals(origin.substr(scheme + 3), host);
}

} // namespace troupe
