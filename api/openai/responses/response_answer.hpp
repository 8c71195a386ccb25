// POST /v1/responses: the response object, whole or as the events of a stream.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/responses/response_store.hpp"
#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <memory>
#include <stop_token>
#include <string>

namespace troupe {

/// A complete answer is kept in `stored`, whose store must outlive the job; as long as its connection if the request
/// asks for that. On connections of their own, answers are streams. Throws as parse_response_request.
generation_job response_job(const field_reader& body, std::shared_ptr<const served_model> model,
                            const response_shelf& stored, const std::stop_token& stop);

/// `usage` of a response.
std::string response_usage(const usage& used);

} // namespace troupe
