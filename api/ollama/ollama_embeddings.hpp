// Ollama's embeddings: /api/embed, and the older /api/embeddings for one prompt. Pure; runs on worker threads.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <memory>
#include <stop_token>

namespace troupe {

/// POST /api/embed: vectors of length 1. Inputs beyond the context are cut off unless `truncate` is false.
generation_job ollama_embed_job(const field_reader& body, std::shared_ptr<const served_model> model,
                                const std::stop_token& stop);

/// POST /api/embeddings: one vector, as pooled.
generation_job ollama_embedding_job(const field_reader& body, std::shared_ptr<const served_model> model);

} // namespace troupe
