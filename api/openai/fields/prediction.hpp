// OpenAI's `prediction`: a text that the answer is likely to repeat, from which guesses are drawn. Pure; runs on worker
// threads.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <vector>

namespace troupe {

/// Text parts of one prediction.
inline constexpr std::size_t most_prediction_parts = 1024;

/// The tokens of {"type": "content", "content": a text or a list of text parts}; empty if there is none. Throws failure
/// naming the field, also if the text is longer than the context or `speculate` has another source of guesses.
std::vector<token_id> read_prediction(const field_reader& body, const served_model& model);

} // namespace troupe
