#include "api/server/generation_jobs.hpp"

#include "api/ollama/ollama_answer.hpp"
#include "api/ollama/ollama_embeddings.hpp"
#include "api/openai/embeddings.hpp"
#include "api/openai/openai_answer.hpp"
#include "api/openai/responses/response_answer.hpp"

#include <utility>

namespace troupe {

bool makes_jobs(endpoint to) {
  switch (to) {
    case endpoint::completions:
    case endpoint::chat:
    case endpoint::responses:
    case endpoint::embeddings:
    case endpoint::ollama_generate:
    case endpoint::ollama_chat:
    case endpoint::ollama_embed:
    case endpoint::ollama_embeddings: return true;
    default: return false;
  }
}

std::string requested_user(const field_reader& body) {
  constexpr std::size_t longest = 64;
  for (const auto* key : {"user", "safety_identifier"})
    if (const auto found = json::find(body.body(), key); found && found->is_string())
      return std::string(std::string_view(*found).substr(0, longest));
  return {};
}

generation_job parse_job(endpoint to, std::string_view body, std::shared_ptr<const served_model> model,
                         response_store& stored, std::size_t owner, const std::stop_token& stop, std::string* user) {
  const auto document = json::document::parse(body, "the body", errc::bad_request);
  const field_reader fields(document.root());
  if (user)
    *user = requested_user(fields);
  switch (to) {
    case endpoint::completions: return openai_job(dialect::completions, fields, std::move(model), stop);
    case endpoint::chat: return openai_job(dialect::chat, fields, std::move(model), stop);
    case endpoint::responses: return response_job(fields, std::move(model), stored, owner, stop);
    case endpoint::embeddings: return embedding_job(fields, std::move(model), stop);
    case endpoint::ollama_generate: return ollama_job(ollama_call::generate, fields, std::move(model), stop);
    case endpoint::ollama_chat: return ollama_job(ollama_call::chat, fields, std::move(model), stop);
    case endpoint::ollama_embed: return ollama_embed_job(fields, std::move(model), stop);
    case endpoint::ollama_embeddings: return ollama_embedding_job(fields, std::move(model));
    default: throw failure(errc::internal, "this endpoint generates nothing");
  }
}

} // namespace troupe
