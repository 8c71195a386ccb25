#include "api/hub/fetch.hpp"

#include <algorithm>
#include <cstdlib>

namespace troupe::hub {

namespace {

/// Like curl, ignores HTTP_PROXY in capitals, because servers set it from clients' fields.
std::string_view proxy_variable(const char* small, const char* capitals) {
  for (const char* name : {small, capitals})
    if (const char* value = name ? std::getenv(name) : nullptr; value && *value)
      return value;
  return {};
}

/// "a.org, .b.org" and "*"; a name stands for those below it, too.
bool is_excepted(std::string_view host) {
  auto rest = proxy_variable("no_proxy", "NO_PROXY");
  while (!rest.empty()) {
    const auto end = std::min(rest.find(','), rest.size());
    auto name = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (!name.empty() && (name.front() == ' ' || name.front() == '.'))
      name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ')
      name.remove_suffix(1);
    if (name == "*" || (!name.empty() && host == name) ||
        (!name.empty() && host.size() > name.size() && host.ends_with(name) &&
         host[host.size() - name.size() - 1] == '.'))
      return true;
  }
  return false;
}

} // namespace

std::optional<url> proxy_for(const url& target) {
  auto name = target.tls ? proxy_variable("https_proxy", "HTTPS_PROXY") : proxy_variable("http_proxy", nullptr);
  if (name.empty())
    name = proxy_variable("all_proxy", "ALL_PROXY");
  if (name.empty() || is_excepted(target.host))
    return std::nullopt;
  auto proxy = parse_url(name.find("://") == name.npos ? "http://" + std::string(name) : std::string(name));
  if (proxy.tls)
    throw failure(errc::unsupported,
                  "a proxy that is itself reached over TLS (" + proxy.origin() + ") is not supported");
  return proxy;
}

} // namespace troupe::hub
