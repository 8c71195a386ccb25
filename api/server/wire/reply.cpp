#include "api/server/wire/reply.hpp"

#include "api/openai/openai_response.hpp"

#include <algorithm>
#include <cmath>
#include <new>

namespace troupe {

reply reply::json(std::string body, unsigned status) { return {status, std::move(body), "application/json", {}}; }

reply reply::text(std::string body) { return {200, std::move(body), "text/plain; charset=utf-8", {}}; }

reply reply::of(const error& what) {
  auto result = json(error_body(what), status_of(what.code));
  result.code = code_of(what);
  result.param = what.param;
  result.complaint = what.message;
  if (const auto seconds = retry_after(what))
    result.headers.emplace_back("Retry-After", std::to_string(*seconds));
  if (result.status == 401)
    result.headers.emplace_back("WWW-Authenticate", "Bearer");
  return result;
}

std::optional<int> reply::retry_after(const error& what) {
  constexpr double longest = 24 * 3600;
  const auto status = status_of(what.code);
  if (status != 429 && status != 503)
    return std::nullopt;
  return static_cast<int>(std::clamp(std::ceil(what.retry_ms / 1000), 1.0, longest));
}

error caught_error() {
  try {
    throw;
  } catch (const failure& f) {
    return f.what_failed();
  } catch (const std::bad_alloc&) {
    return {errc::out_of_memory, "there is not enough memory for this request", {}};
  } catch (const std::exception& e) {
    return {errc::internal, e.what(), {}};
  }
}

} // namespace troupe
