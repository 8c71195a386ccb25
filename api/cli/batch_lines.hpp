// The lines of OpenAI's batch files: a request and an answer each. Pure functions.
#pragma once

#include "runtime/support/error.hpp"
#include "runtime/support/json/json.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace troupe::cli {

struct batch_request {
  std::string custom_id;
  std::string url; // "/v1/chat/completions"
  std::shared_ptr<const json::document> document;
  json::value body; // within it
};

/// Throws failure(bad_request) with one sentence.
batch_request parse_batch_line(std::string_view line);

/// The id in a line of either kind, as far as it can be read; empty otherwise.
std::string custom_id_of(std::string_view line);

/// Whether a line, or the beginning of one, is an answer that this program wrote.
bool may_be_answer(std::string_view line);

/// `body`: JSON.
std::string answered_line(std::string_view custom_id, unsigned status, std::string_view body);
/// The answer's line for a request that was refused or that failed.
std::string failed_line(std::string_view custom_id, const error& why);
/// The answer's line for a line that is not a request.
std::string invalid_line(std::string_view custom_id, const error& why);

} // namespace troupe::cli
