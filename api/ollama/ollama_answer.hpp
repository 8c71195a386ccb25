// Ollama's answers: objects, or streams of them with one on each line. Times are in nanoseconds.
#pragma once

#include "api/ollama/ollama_request.hpp"
#include "api/openai/answer_writer.hpp"

#include <memory>
#include <stop_token>
#include <string>

namespace troupe {

/// POST /api/generate and /api/chat. Throws as parse_ollama.
generation_job ollama_job(ollama_call call, const field_reader& body, std::shared_ptr<const served_model> model,
                          const std::stop_token& stop);

/// The same of a model that is not loaded, and is not loaded to be unloaded. Without a writer if the body asks for more.
generation_job ollama_unload_job(ollama_call call, const field_reader& body);

/// {"error": sentence}
std::string ollama_error(const std::string& sentence);

/// Now, as in RFC 3339.
std::string ollama_time();

} // namespace troupe
