// Anthropic's requests for messages, translated into chats (translated_request.hpp). Pure functions, used on worker
// threads.
#pragma once

#include "api/openai/openai_request.hpp"
#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <cstddef>
#include <stop_token>
#include <string>
#include <vector>

namespace troupe {

struct message_request {
  generation_request asked;
  std::vector<std::string> stop_sequences; // the client's
  bool wants_more = false; // `max_tokens` is more than the context has room for, so the context's end cuts the answer
  std::vector<std::string> notes;
};

/// Parses the body of POST /v1/messages. Sampling parameters of chats are taken beside Anthropic's. Throws failure as
/// parse_generation.
message_request parse_message_request(const field_reader& body, const served_model& model,
                                      const std::stop_token& stop = {});

/// The tokens of a request's prompt, which need not fit into the context.
counted_prompt count_message_request(const field_reader& body, const served_model& model,
                                     const std::stop_token& stop = {});

} // namespace troupe
