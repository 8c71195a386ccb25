// POST /v1/responses/compact: a conversation as its users' messages and a summary of the rest, which the model writes.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/openai/responses/response_store.hpp"
#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <memory>
#include <stop_token>

namespace troupe {

/// Throws as parse_response_request.
generation_job compaction_job(const field_reader& body, std::shared_ptr<const served_model> model,
                              const response_shelf& stored, const std::stop_token& stop);

} // namespace troupe
