#include "api/openai/responses/input_page.hpp"
#include "api/openai/responses/response_request.hpp"
#include "api/openai/responses/response_store.hpp"
#include "api/server/answers/answers.hpp"
#include "api/server/answers/request_of.hpp"
#include "runtime/support/json/json_object.hpp"

namespace troupe {

namespace {

failure missing(std::string_view id) {
  return failure(errc::not_found, "there is no response `" + std::string(id) + "`, or not any more", "id");
}

auto find_response(const call& c) {
  auto found = c.stored.find(c.owner, std::string(c.id));
  if (!found)
    throw missing(c.id);
  return found;
}

} // namespace

reply count_response(const call& c) {
  const request_of asked(c);
  auto [tokens, notes] = count_input_tokens(asked.body, *asked.model, {c.stored, c.owner}, c.stop);
  auto result = reply::json(json_object().text("object", "response.input_tokens").number("input_tokens", tokens).str());
  result.notes = std::move(notes);
  return result;
}

reply list_response_input(const call& c) { return reply::json(input_page(find_response(c)->input, c.query)); }

reply refuse_cancellation(const call& c) {
  find_response(c);
  throw failure(errc::bad_request,
                "the response `" + std::string(c.id) +
                  "` cannot be cancelled: only those in the background can, and this server has none",
                "id");
}

reply tell_response(const call& c) { return reply::json(find_response(c)->body); }

reply delete_response(const call& c) {
  if (!c.stored.remove(c.owner, std::string(c.id)))
    throw missing(c.id);
  return reply::json(json_object().text("id", c.id).text("object", "response").flag("deleted", true).str());
}

} // namespace troupe
