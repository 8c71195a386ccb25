#include "api/http/request_target.hpp"

#include "runtime/support/text/ascii.hpp"
#include "runtime/support/text/utf8.hpp"

#include <boost/asio/ip/address_v6.hpp>
#include <boost/beast/core/string.hpp>

#include <algorithm>

namespace troupe {

namespace http = boost::beast::http;
using boost::beast::iequals;

namespace {

std::string_view view(boost::beast::string_view s) { return {s.data(), s.size()}; }

[[noreturn]] void throw_ambiguous(const std::string& why) { throw failure(errc::bad_request, why); }

bool is_host_character(char c) {
  constexpr std::string_view signs = "-._~!$&'()*+,;=%";
  return is_ascii_letter(c) || is_ascii_digit(c) || signs.find(c) != signs.npos;
}

bool is_port(std::string_view text) { return text.size() <= 5 && std::ranges::all_of(text, is_ascii_digit); }

std::optional<std::string_view> after_scheme(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (iequals(target.substr(0, scheme.size()), scheme))
      return target.substr(scheme.size());
  return std::nullopt;
}

/// Beast reads no body unless the last coding is `chunked`; the body's bytes would become the next request.
void check_length(const http::request_header<>& head) {
  const auto codings = head.count(http::field::transfer_encoding);
  if (codings == 0)
    return;
  const auto coding = view(head[http::field::transfer_encoding]);
  if (codings > 1 || !iequals(coding, "chunked"))
    throw_ambiguous("the only supported Transfer-Encoding is `chunked`, once; this is `" + to_utf8(coding) + '`' +
                    (codings > 1 ? " and more" : ""));
  if (head.version() < 11)
    throw_ambiguous("an HTTP/1.0 request has no Transfer-Encoding");
  if (head.count(http::field::content_length))
    throw_ambiguous("a request has either Content-Length or Transfer-Encoding, not both");
}

} // namespace

std::optional<authority> parse_authority(std::string_view text) {
  authority result;
  std::string_view rest;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == text.npos)
      return std::nullopt;
    result.host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
    boost::system::error_code ec;
    boost::asio::ip::make_address_v6(result.host, ec);
    if (ec)
      return std::nullopt;
  } else {
    const auto end = std::min(text.find(':'), text.size());
    result.host = text.substr(0, end);
    rest = text.substr(end);
    if (!std::all_of(result.host.begin(), result.host.end(), is_host_character))
      return std::nullopt;
  }
  if (result.host.empty() || (!rest.empty() && !rest.starts_with(':')) || !is_port(rest.substr(!rest.empty())))
    return std::nullopt;
  result.port = rest.substr(!rest.empty());
  return result;
}

request_target read_target(const http::request_header<>& head) {
  check_length(head);
  request_target result;
  const auto hosts = head.count(http::field::host);
  if (hosts > 1)
    throw_ambiguous("a request has one Host header, not " + std::to_string(hosts));
  if (hosts == 0 && head.version() >= 11)
    throw_ambiguous("an HTTP/1.1 request needs a Host header");
  if (hosts == 1) {
    const auto given = view(head[http::field::host]);
    result.host = parse_authority(given);
    if (!result.host)
      throw_ambiguous("the Host header must be a name or an address, with or without a port, not `" + to_utf8(given) +
                      '`');
  }

  const auto target = view(head.target());
  if (target.starts_with('/') || (target == "*" && head.method() == http::verb::options)) {
    result.path = target;
    return result;
  }
  const auto rest = after_scheme(target);
  if (!rest)
    throw_ambiguous("the target must be a path or a URL, not `" + to_utf8(target) + '`');
  const auto end = std::min(rest->find_first_of("/?#"), rest->size());
  result.host = parse_authority(rest->substr(0, end)); // overrides Host
  if (!result.host)
    throw_ambiguous("the target `" + to_utf8(target) + "` names no host");
  result.path = rest->substr(end).starts_with('/') ? rest->substr(end) : "/";
  return result;
}

} // namespace troupe
