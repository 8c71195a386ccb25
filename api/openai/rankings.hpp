// Ranks documents by their relevance to a query: POST /v1/rerank and /rerank, as Jina, Cohere and vLLM have them, and
// vLLM's score for pairs of texts. A classification model (cross-encoders, Qwen 3's rerankers) scores each pair; other
// models compare embeddings. Pure; parsing runs on worker threads.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <memory>
#include <stop_token>

namespace troupe {

/// Documents of one request, or pairs.
inline constexpr std::size_t most_ranked = 1024;

/// Bodies: `query`, `documents` (texts, or objects with `text`), `top_n`, `return_documents`, `max_tokens_per_doc`.
/// Throws failure naming the field, or failure(unsupported) if the model can neither score nor embed.
generation_job rerank_job(const field_reader& body, std::shared_ptr<const served_model> model,
                          const std::stop_token& stop);

/// Bodies: `text_1` and `text_2`, each a text or a list: one with many, or as many with as many. Throws as above.
generation_job score_job(const field_reader& body, std::shared_ptr<const served_model> model,
                         const std::stop_token& stop);

} // namespace troupe
