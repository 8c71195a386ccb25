// The fields of requests that are judged as pairs: `negative_prompt` of classifier-free guidance, whose
// `guidance_scale` is a row of the sampling table; and what is refused with a reason (`dola_layers`).
#pragma once

#include "api/openai/fields/field_reader.hpp"
#include "api/openai/service.hpp"

#include <vector>

namespace troupe {

/// A text or a list of token ids, which fits into the context; empty if absent. `special`: texts get special tokens as
/// prompts do. Throws failure(bad_request), also if there is no `guidance_scale`.
std::vector<token_id> read_negative_prompt(const field_reader& body, const served_model& model, bool special);

/// Throws failure(unsupported) if layers are to be contrasted.
void refuse_dola(const field_reader& body);

} // namespace troupe
