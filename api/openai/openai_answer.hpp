// Completions and chats over HTTP, as a job: parsed, and written by a response_writer. Pure; parsing runs on worker
// threads.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/openai/openai_request.hpp"

#include <memory>
#include <stop_token>

namespace troupe {

/// Throws as parse_generation.
generation_job openai_job(dialect speaks, const field_reader& body, std::shared_ptr<const served_model> model,
                          const std::stop_token& stop);

} // namespace troupe
