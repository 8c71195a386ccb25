// Reads `negative_prompt`: the prompt of a request's twin.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <vector>

namespace troupe {

/// A text or a list of token ids, which fits into the context; empty if absent. `special`: texts get special tokens as
/// prompts do. Throws failure(bad_request).
std::vector<token_id> read_negative_prompt(const field_reader& body, const served_model& model, bool special);

} // namespace troupe
