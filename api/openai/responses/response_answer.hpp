// POST /v1/responses: the response object, whole or as the events of a stream.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/openai/fields/field_reader.hpp"
#include "api/openai/responses/response_store.hpp"
#include "api/service/served_model.hpp"

#include <memory>
#include <stop_token>

namespace troupe {

/// A complete answer is kept in `stored`, which must outlive the job, unless the request says otherwise. Throws as
/// parse_response_request.
generation_job response_job(const field_reader& body, std::shared_ptr<const served_model> model, response_store& stored,
                            std::size_t owner, const std::stop_token& stop);

} // namespace troupe
