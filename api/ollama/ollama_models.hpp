// What Ollama's clients ask of models: /api/tags, /api/ps, /api/show. Pure functions.
#pragma once

#include "api/service/service.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <string>
#include <vector>

namespace troupe {

/// {"models":[...]} of GET /api/tags: all, with the sizes of their files where those are
/// known.
std::string ollama_tags(const std::vector<known_model>& models);
/// {"models":[...]} of GET /api/ps: those that are loaded.
std::string ollama_running(const std::vector<known_model>& models);
/// The answer to POST /api/show. Throws failure(not_found) for another model.
std::string ollama_show(const field_reader& body, const served_model& model);
/// The lines of the answer to POST /api/pull of the model served, which is there already. Throws failure(not_found) for
/// another.
std::vector<std::string> ollama_pull(const field_reader& body, const served_model& model);
/// {"version":"0.12.11"}: of the Ollama whose API this is.
std::string ollama_version();

} // namespace troupe
