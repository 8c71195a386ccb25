// Anthropic's messages: objects, or streams of events. Pure; parsing runs on worker threads.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

namespace troupe {

/// POST /v1/messages. Throws as parse_message_request.
generation_job message_job(const field_reader& body, std::shared_ptr<const served_model> model,
                           const std::stop_token& stop);

/// {"type":"error","error":{"type","message"},"request_id"} for an error of this status of HTTP.
std::string message_error(unsigned status, const std::string& sentence, std::string_view request_id);

} // namespace troupe
