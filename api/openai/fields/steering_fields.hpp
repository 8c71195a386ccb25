// The field `steering` of completions and chats: a list of {name, strength, first_layer, last_layer}. Pure; runs on
// worker threads.
#pragma once

#include "api/openai/fields/field_reader.hpp"
#include "api/service/served_model.hpp"
#include "runtime/engine/generation.hpp"

#include <vector>

namespace troupe {

/// Throws failure(bad_request) that names the field.
std::vector<steering_choice> read_steering_choices(const field_reader& body, const served_model& model);

} // namespace troupe
