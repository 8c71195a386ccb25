// The fields of a body that say how to sample, shared by completions, chat and WebSocket requests. Pure; worker
// threads.
#pragma once

#include "api/openai/field_reader.hpp"
#include "api/openai/service.hpp"

namespace troupe {

/// Throws failure(unsupported) naming the first field that asks for something which this server does not do. A value
/// that asks for nothing (null, false, the neutral number) is let through.
void refuse_unsupported(const field_reader& body);

/// Everything of sampling_params but `max_tokens` and `logprobs`, over the model's defaults. Without `seed` a random
/// one.
sampling_params read_sampling(const field_reader& body, const served_model& model);

} // namespace troupe
