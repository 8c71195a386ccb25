// The sampling fields of a request body, shared by completions, chat and WebSocket. Pure; runs on worker threads.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

namespace troupe {

/// Throws failure(unsupported) naming the first field that asks for an unsupported feature. Values that ask for nothing
/// (null, false, the neutral number) are accepted.
void refuse_unsupported(const field_reader& body);

/// Reads all of sampling_params but `max_tokens`, `logprobs` and `prompt_logprobs`, over `defaults`. The seed is random
/// if not given.
sampling_params read_sampling(const field_reader& body, const served_model& model, const sampling_params& defaults);

} // namespace troupe
