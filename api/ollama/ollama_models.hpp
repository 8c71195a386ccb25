// What Ollama's clients ask of models: /api/tags, /api/ps, /api/show. All that are listed are loaded. Pure functions.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <memory>
#include <string>
#include <vector>

namespace troupe {

using model_list = std::vector<std::shared_ptr<const served_model>>;

/// {"models":[...]} of GET /api/tags.
std::string ollama_tags(const model_list& models);
/// {"models":[...]} of GET /api/ps.
std::string ollama_running(const model_list& models);
/// The answer to POST /api/show. Throws failure(not_found) for another model.
std::string ollama_show(const field_reader& body, const served_model& model);
/// The lines of the answer to POST /api/pull of the model served, which is there already. Throws failure(not_found) for
/// another.
std::vector<std::string> ollama_pull(const field_reader& body, const served_model& model);
/// {"version":"0.12.11"}: of the Ollama whose API this is.
std::string ollama_version();

} // namespace troupe
