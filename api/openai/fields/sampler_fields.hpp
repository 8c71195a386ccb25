// Reads the sampling fields that name texts, tokens or steps. Turning texts into tokens needs the model's tokenizer.
// Pure; runs on worker threads.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

namespace troupe {

/// Reads `samplers`, `logit_bias`, `bad_words`, `allowed_token_ids` and `dry_sequence_breakers` (by default new lines,
/// colons, quotes and asterisks). Throws failure(bad_request) naming the field.
void read_sampler_fields(const field_reader& body, const served_model& model, sampling_params& params);

} // namespace troupe
