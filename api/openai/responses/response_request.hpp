// Translates the body of POST /v1/responses into a chat (translated_request.hpp). Pure except for the store; runs on
// worker threads.
#pragma once

#include "api/openai/openai_request.hpp"
#include "api/openai/responses/response_store.hpp"
#include "api/openai/responses/response_tools.hpp"
#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

namespace troupe {

struct response_request {
  generation_request asked; // one prompt
  bool store = true;
  bool generates = true;        // false: only the state is made, on a connection
  std::string repeated;         // members of the response object that repeat the request: JSON, separated by commas
  std::string input;            // the input items: a JSON list
  std::string messages;         // the conversation without instructions: messages of a chat, separated by commas
  bool seals_reasoning = false; // it is told as `encrypted_content`, too
  std::shared_ptr<const tool_namespaces> namespaces; // never null
  std::vector<std::string> notes;                    // what is left out
};

/// Fields of chats that responses lack (sampling parameters, forms of vLLM's) are taken, too. What would change the
/// answer but is not implemented is refused by name. Throws failure.
response_request parse_response_request(const field_reader& body, const served_model& model,
                                        const response_shelf& stored, const std::stop_token& stop);

/// POST /v1/responses/input_tokens: how many tokens the input of such a request would have. Throws failure.
counted_prompt count_input_tokens(const field_reader& body, const served_model& model, const response_shelf& stored,
                                  const std::stop_token& stop);

} // namespace troupe
