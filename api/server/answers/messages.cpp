#include "api/anthropic/message_request.hpp"
#include "api/server/answers/answers.hpp"
#include "api/server/answers/request_of.hpp"
#include "runtime/support/json/json_object.hpp"

namespace troupe {

reply count_message_tokens(const call& c) {
  const request_of asked(c);
  auto [tokens, notes] = count_message_request(asked.body, *asked.model, c.stop);
  auto result = reply::json(json_object().number("input_tokens", tokens).str());
  result.notes = std::move(notes);
  return result;
}

} // namespace troupe
