#include "api/server/request_checks.hpp"

#include "runtime/support/text/ascii.hpp"
#include "runtime/support/text/base64.hpp"
#include "runtime/support/text/utf8.hpp"

#include <boost/beast/http/error.hpp>

#include <algorithm>

namespace troupe {

namespace http = boost::beast::http;

namespace {

bool is_json(std::string_view content_type) {
  auto type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' '))
    type.remove_suffix(1);
  const auto lower = ascii_lower(type);
  return lower == "application/json" || lower.ends_with("+json");
}

/// The answer to OPTIONS. Needs no key, because browsers send preflights without one.
std::optional<reply> preflight(const http::request_header<>& head, std::string_view path, const live_settings& live) {
  if (head.method() != http::verb::options)
    return std::nullopt;
  const auto methods = allowed_methods(path);
  if (methods.empty())
    return std::nullopt;
  reply result{204, {}, {}, {{"Allow", methods}}};
  const auto origin = allowed_origin(live.cors_origins, view(head[http::field::origin]));
  if (!origin || !head.count(http::field::access_control_request_method))
    return result;
  result.headers.emplace_back("Access-Control-Allow-Methods", methods);
  const auto asked = head[http::field::access_control_request_headers];
  result.headers.emplace_back("Access-Control-Allow-Headers",
                              asked.empty() ? "Authorization, Content-Type" : std::string(asked));
  result.headers.emplace_back("Access-Control-Max-Age", "600");
  return result;
}

/// Refuses pages of origins that are not allowed. Browsers send Origin with every POST, WebSocket and cross-origin
/// read.
std::optional<reply> check_origin(const http::request_header<>& head, const live_settings& live) {
  const auto origin = view(head[http::field::origin]);
  if (head.count(http::field::origin) == 0 || allowed_origin(live.cors_origins, origin) ||
      is_same_origin(origin, view(head[http::field::host])))
    return std::nullopt;
  return refusal(403,
                 "pages of the origin `" + to_utf8(origin) + "` may not use this server; --cors-origin allows them");
}

/// Whether a browser says that another site's page makes it ask, without the Origin that reads have: as an image, or by
/// going there. Nothing can be read, but all work is done.
bool is_foreign(const http::request_header<>& head, const live_settings& live) {
  const auto from = view(head["Sec-Fetch-Site"]);
  return (from == "cross-site" || from == "same-site") && head.count(http::field::origin) == 0 &&
    std::ranges::find(live.cors_origins, "*") == live.cors_origins.end();
}

/// The key in a list of subprotocols, all that a page in a browser can send with a WebSocket: `troupe.key.` and the key
/// in base64 of URLs.
std::optional<std::string> key_of_protocols(std::string_view list) {
  constexpr std::string_view prefix = "troupe.key.";
  for (std::size_t at = 0; at < list.size();) {
    const auto end = std::min(list.find(',', at), list.size());
    auto one = list.substr(at, end - at);
    at = end + 1;
    while (one.starts_with(' '))
      one.remove_prefix(1);
    while (one.ends_with(' '))
      one.remove_suffix(1);
    if (!one.starts_with(prefix))
      continue;
    std::string text(one.substr(prefix.size()));
    std::ranges::replace(text, '-', '+');
    std::ranges::replace(text, '_', '/');
    return decode_base64(text);
  }
  return std::nullopt;
}

bool opens_metrics(std::string_view authorization, const live_settings& live) {
  const auto token = bearer_token(authorization);
  return token && same_in_constant_time(*token, live.metrics_key);
}

/// Why a request may not do what the operator's key alone allows, if so.
std::optional<reply> check_operator(const http::request_header<>& head, const live_settings& live) {
  if (live.admin_key.empty())
    return refusal(403, "no client may do this, as the server was started without --admin-key-file");
  const auto key = view(head["x-api-key"]);
  const auto token = bearer_token(view(head[http::field::authorization]));
  if ((token && same_in_constant_time(*token, live.admin_key)) ||
      (!key.empty() && same_in_constant_time(key, live.admin_key)))
    return std::nullopt;
  return reply::of({errc::unauthorized, "send the operator's key: `Authorization: Bearer KEY`", {}});
}

} // namespace

reply refusal(unsigned status, const std::string& why) {
  auto result = reply::of({errc::bad_request, why, {}});
  result.status = status;
  return result;
}

std::optional<reply> reply_to_unreadable(boost::system::error_code ec, std::size_t max_body_bytes) {
  if (ec == http::error::end_of_stream || ec.category() != http::make_error_code(http::error::bad_method).category())
    return std::nullopt;
  if (ec == http::error::header_limit)
    return refusal(431, "the request's header is too large");
  if (ec == http::error::buffer_overflow)
    return refusal(431, "a chunk's header, or the trailer, is too large");
  if (ec == http::error::body_limit)
    return reply::of({errc::too_large, "the body is larger than " + std::to_string(max_body_bytes) + " bytes", {}});
  if (ec == http::error::partial_message)
    return std::nullopt;
  return reply::of({errc::bad_request, "this is not HTTP: " + ec.message(), {}});
}

header_fields cors_headers(const http::request_header<>& head, const live_settings& live) {
  header_fields result;
  if (const auto origin = allowed_origin(live.cors_origins, view(head[http::field::origin]))) {
    result.emplace_back("Access-Control-Allow-Origin", *origin);
    result.emplace_back("Access-Control-Expose-Headers", "Retry-After, X-Request-Id, request-id, X-Troupe-Warning");
  }
  if (!live.cors_origins.empty())
    result.emplace_back("Vary", "Origin");
  return result;
}

header_verdict check_header(const http::request_header<>& head, const request_target& target,
                            const std::variant<found_endpoint, reply>& found, const live_settings& live,
                            key_ring& keys) {
  if (target.host && !live.hosts.allow(target.host->host))
    return {refusal(403,
                    "to block DNS rebinding, this server refuses requests for the host `" +
                      std::string(target.host->host) + "`; --allowed-hosts allows it")};
  if (auto allowed = preflight(head, target.path, live))
    return {std::move(allowed)};
  if (auto why = check_origin(head, live))
    return {std::move(why)};
  const auto* to = std::get_if<found_endpoint>(&found);
  if (to && to->row->needs != access::open && is_foreign(head, live))
    return {refusal(403, "pages of other origins may not use this server; --cors-origin allows them")};
  const auto authorization = view(head[http::field::authorization]);
  const bool by_operator = to && to->row->needs == access::admin && head.method() == http::verb::post;
  if (by_operator)
    if (auto why = check_operator(head, live))
      return {std::move(why)};
  const bool guarded = to && to->row->needs == access::metrics && !live.metrics_key.empty();
  const bool open = by_operator ||
    (to && (to->row->needs == access::open || (guarded && opens_metrics(authorization, live))));
  // With a key for /metrics alone, a server without others still asks for that one there.
  auto caller = guarded && keys.is_open() ? std::nullopt : keys.find(authorization);
  // Anthropic's clients have the key in a header of its own, some beside a bearer's token of something else.
  if (const auto key = view(head["x-api-key"]); !caller && !key.empty() && !keys.is_open())
    caller = keys.find("Bearer " + std::string(key));
  if (!caller && !keys.is_open() && to && std::holds_alternative<upgraded>(to->row->what))
    if (const auto key = key_of_protocols(view(head[http::field::sec_websocket_protocol])))
      caller = keys.find("Bearer " + *key);
  header_verdict result{std::nullopt, caller.value_or(key_ring::owner{})};
  if (!open && !caller)
    result.answer = reply::of(
      {errc::unauthorized, "send an API key: `Authorization: Bearer KEY`, or `x-api-key: KEY`", {}});
  else if (!to)
    result.answer = std::get<reply>(found);
  // A missing type is refused, too: pages of other origins may send that without a preflight.
  else if (head.method() == http::verb::post && !to->row->any_content_type &&
           !is_json(view(head[http::field::content_type])))
    result.answer = refusal(415, "send JSON, with `Content-Type: application/json`");
  else if (const auto coding = view(head[http::field::content_encoding]);
           !coding.empty() && !boost::beast::iequals(coding, "identity"))
    result.answer = refusal(415,
                            "send the body as it is: `Content-Encoding: " + to_utf8(coding) + "` is not undone here");
  return result;
}

} // namespace troupe
