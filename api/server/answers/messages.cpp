#include "api/anthropic/message_request.hpp"
#include "api/openai/json_object.hpp"
#include "api/server/answers/answers.hpp"
#include "api/server/answers/request_of.hpp"

namespace troupe {

reply count_message_tokens(const call& c) {
  const request_of asked(c);
  return reply::json(
    json_object().number("input_tokens", count_message_request(asked.body, *asked.model, c.stop)).str());
}

} // namespace troupe
