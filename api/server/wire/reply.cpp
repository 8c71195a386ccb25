#include "api/server/wire/reply.hpp"

#include "api/openai/openai_response.hpp"

#include <new>

namespace troupe {

reply reply::json(std::string body, unsigned status) { return {status, std::move(body), "application/json", {}}; }

reply reply::text(std::string body) { return {200, std::move(body), "text/plain; charset=utf-8", {}}; }

reply reply::of(const error& what) {
  auto result = json(error_body(what), status_of(what.code));
  result.code = code_of(what);
  result.param = what.param;
  result.complaint = what.message;
  if (const auto seconds = retry_after(result.status))
    result.headers.emplace_back("Retry-After", std::to_string(*seconds));
  if (result.status == 401)
    result.headers.emplace_back("WWW-Authenticate", "Bearer");
  return result;
}

std::optional<int> reply::retry_after(unsigned status) {
  return status == 429 || status == 503 ? std::optional(1) : std::nullopt;
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
