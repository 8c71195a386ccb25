// The endpoints that ask the engine for something: which parser reads their requests. Each makes a generation_job, which
// generation_exchange carries out.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/openai/fields/field_reader.hpp"
#include "api/openai/responses/response_store.hpp"
#include "api/openai/service.hpp"
#include "api/server/routes.hpp"

#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

namespace troupe {

/// Whether requests to the endpoint become generation_jobs.
bool makes_jobs(endpoint to);

/// Parses a body. `owner`: index of the request's API key; a response that is to be stored goes to `stored` under it.
/// `user`: set to requested_user() of it. Throws failure, and failure(cancelled) soon after a stop request. Runs on
/// worker threads.
generation_job parse_job(endpoint to, std::string_view body, std::shared_ptr<const served_model> model,
                         response_store& stored, std::size_t owner, const std::stop_token& stop,
                         std::string* user = nullptr);

/// For whom the client asks, as it says in `user` or `safety_identifier`, for the log; cut short. Empty: it does not
/// say.
std::string requested_user(const field_reader& body);

} // namespace troupe
