#include "api/access.hpp"

#include <algorithm>
#include <cctype>

namespace troupe {

namespace {

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

} // namespace

bool same_in_constant_time(std::string_view a, std::string_view b) {
  volatile unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = difference | static_cast<unsigned char>(a[i] ^ (b.empty() ? '\0' : b[i % b.size()]));
  return difference == 0;
}

bool is_authorized(const std::vector<std::string>& keys, std::string_view authorization) {
  if (keys.empty())
    return true;
  constexpr std::string_view scheme = "bearer ";
  if (!same_letters(authorization.substr(0, scheme.size()), scheme))
    return false;
  auto given = authorization.substr(scheme.size());
  given.remove_prefix(std::min(given.find_first_not_of(' '), given.size()));
  bool found = false;
  for (const auto& key : keys)
    found = same_in_constant_time(given, key) || found;
  return found;
}

std::optional<std::string> allowed_origin(const std::vector<std::string>& origins, std::string_view origin) {
  if (origin.empty())
    return std::nullopt;
  for (const auto& allowed : origins) {
    if (allowed == "*")
      return "*";
    if (same_letters(allowed, origin))
      return std::string(origin);
  }
  return std::nullopt;
}

bool is_same_origin(std::string_view origin, std::string_view host) {
  const auto scheme = origin.find("://");
  return scheme != origin.npos && !host.empty() && same_letters(origin.substr(scheme + 3), host);
}

} // namespace troupe
