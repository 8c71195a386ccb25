#include "api/hub/url.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/text/percent_encoding.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <algorithm>

namespace troupe::hub {

namespace {

constexpr std::string_view slashes = "//";
constexpr std::size_t longest_url = 16384;

[[noreturn]] void refuse_url(std::string_view text) {
  throw failure(errc::bad_request, "`" + visible_name(text) + "` is not an address of HTTP or HTTPS");
}

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

} // namespace

std::string url::authority() const {
  const auto name = host.find(':') == host.npos ? host : "[" + host + "]";
  return port == (tls ? "443" : "80") ? name : name + ":" + port;
}

std::string url::origin() const { return (tls ? "https://" : "http://") + authority(); }

url parse_url(std::string_view text) {
  url result;
  // What is sent is a line of a request: nothing may end it, or begin another.
  const auto bad = [](unsigned char c) { return c <= ' ' || c == 0x7f; };
  if (text.size() > longest_url || std::ranges::any_of(text, bad))
    refuse_url(text);
  auto rest = text;
  if (rest.starts_with("https:"))
    rest.remove_prefix(6);
  else if (rest.starts_with("http:")) {
    result.tls = false;
    rest.remove_prefix(5);
  } else
    refuse_url(text);
  if (!rest.starts_with(slashes))
    refuse_url(text);
  rest.remove_prefix(slashes.size());
  rest = rest.substr(0, rest.find('#'));
  const auto end = std::min(rest.find_first_of("/?"), rest.size());
  auto authority = rest.substr(0, end);
  result.target = rest.substr(end);
  if (!result.target.starts_with('/'))
    result.target.insert(0, "/");
  if (const auto at = authority.rfind('@'); at != authority.npos) {
    result.user = percent_decoded(authority.substr(0, at));
    authority.remove_prefix(at + 1);
  }
  auto name_end = authority.rfind(':');
  if (authority.starts_with('[')) {
    const auto close = authority.find(']');
    if (close == authority.npos)
      refuse_url(text);
    result.host = authority.substr(1, close - 1);
    name_end = close + 1 < authority.size() ? close + 1 : authority.npos;
    if (name_end != authority.npos && authority[name_end] != ':')
      refuse_url(text);
  } else
    result.host = authority.substr(0, std::min(name_end, authority.size()));
  result.port = name_end == authority.npos ? (result.tls ? "443" : "80") : std::string(authority.substr(name_end + 1));
  const auto in_host = [](char c) { return is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == ':'; };
  if (result.host.empty() || !std::ranges::all_of(result.host, in_host) || result.port.empty() ||
      result.port.size() > 5 || result.port.find_first_not_of("0123456789") != std::string::npos)
    refuse_url(text);
  return result;
}

url resolve(const url& base, std::string_view location) {
  if (location.starts_with("http:") || location.starts_with("https:"))
    return parse_url(location);
  if (location.starts_with(slashes))
    return parse_url((base.tls ? "https:" : "http:") + std::string(location));
  if (location.starts_with('/'))
    return parse_url(base.origin() + std::string(location));
  const auto path = std::string_view(base.target).substr(0, base.target.find('?'));
  return parse_url(base.origin() + std::string(path.substr(0, path.rfind('/') + 1)) + std::string(location));
}

std::string escaped_path(std::string_view text) {
  constexpr std::string_view capitals = "0123456789ABCDEF";
  std::string result;
  for (const unsigned char c : text)
    if (is_alphanumeric(static_cast<char>(c)) || c == '-' || c == '.' || c == '_' || c == '~' || c == '/')
      result += static_cast<char>(c);
    else
      ((result += '%') += capitals[c >> 4]) += capitals[c & 15];
  return result;
}

} // namespace troupe::hub
