// The field `search`: Monte-Carlo tree search for the best answers.
#pragma once

#include "api/openai/fields/field_reader.hpp"
#include "api/service/served_model.hpp"
#include "runtime/sampling/sampling_params.hpp"

namespace troupe {

/// Throws failure(bad_request | unsupported) naming the field.
void read_search(const field_reader& body, const served_model& model, sampling_params& params);

} // namespace troupe
