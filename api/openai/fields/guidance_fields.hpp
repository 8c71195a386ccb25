// Reads the fields of guidance and contrasts that are not in the sampling table: `negative_prompt` of classifier-free
// guidance, and `dola_layers`.
#pragma once

#include "api/openai/fields/field_reader.hpp"
#include "api/service/served_model.hpp"
#include "runtime/sampling/dola_layers.hpp"

#include <vector>

namespace troupe {

/// A text or a list of token ids, which fits into the context; empty if absent. `special`: texts get special tokens as
/// prompts do. Throws failure(bad_request), also if there is no `guidance_scale`.
std::vector<token_id> read_negative_prompt(const field_reader& body, const served_model& model, bool special);

/// A word or a list of layers, which the model may still lack; nothing if absent. Throws failure(bad_request).
dola_layers read_dola(const field_reader& body);

} // namespace troupe
