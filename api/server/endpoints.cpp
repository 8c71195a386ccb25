#include "api/anthropic/message_answer.hpp"
#include "api/ollama/ollama_answer.hpp"
#include "api/ollama/ollama_embeddings.hpp"
#include "api/openai/embeddings.hpp"
#include "api/openai/infill.hpp"
#include "api/openai/openai_answer.hpp"
#include "api/openai/rankings.hpp"
#include "api/openai/responses/compaction.hpp"
#include "api/openai/responses/response_answer.hpp"
#include "api/server/answers/answers.hpp"
#include "api/server/endpoint.hpp"

#include <array>

namespace troupe {

namespace {

using in = const generation_call&;

std::string as_ollama(const reply& why, std::string_view) { return ollama_error(why.complaint); }

/// A row of Ollama's API, whose clients often send no content type (`curl -d` as its documentation has it). Pages of
/// other origins, which may send that without a preflight, are kept away by Origin and Host.
constexpr endpoint ollama(std::string_view method, std::string_view path, endpoint::function what) {
  return {.method = method, .path = path, .what = what, .any_content_type = true, .error_format = as_ollama};
}

/// A row of Anthropic's API.
constexpr endpoint anthropic(std::string_view path, endpoint::function what) {
  return {.method = "POST",
          .path = path,
          .what = what,
          .error_format = as_anthropic,
          .speaks_anthropic = endpoint::anthropic::always};
}

constexpr auto rows = std::to_array<endpoint>({
  // OpenAI's
  {"POST", "/v1/completions",
   generated{[](in c) { return openai_job(dialect::completions, c.body, c.model, c.stop); }}},
  {"POST", "/v1/chat/completions", generated{[](in c) { return openai_job(dialect::chat, c.body, c.model, c.stop); }}},
  {"POST", "/v1/embeddings", generated{[](in c) { return embedding_job(c.body, c.model, c.stop); }}},
  {"POST", "/v1/responses", generated{[](in c) {
     return response_job(c.body, c.model, {c.stored, c.owner, c.client}, c.stop);
   }}},
  {"GET", "/v1/responses", upgraded{.to_responses = true}},
  {"POST", "/v1/responses/input_tokens", answered{count_response, thread_of::parsing}},
  {"POST", "/v1/responses/compact", generated{[](in c) {
     return compaction_job(c.body, c.model, {c.stored, c.owner, c.client}, c.stop);
   }}},
  {"GET", "/v1/responses/{id}/input_items", answered{list_response_input}},
  {"POST", "/v1/responses/{id}/cancel", answered{refuse_cancellation}},
  {"GET", "/v1/responses/{id}", resumed{.otherwise = tell_response}},
  {"DELETE", "/v1/responses/{id}", answered{delete_response}},
  // OpenAI's and Anthropic's
  {.method = "GET",
   .path = "/v1/models",
   .what = answered{list_models},
   .speaks_anthropic = endpoint::anthropic::if_asked},
  {.method = "POST",
   .path = "/v1/models/load",
   .what = answered{load_model, thread_of::parsing},
   .needs = access::admin},
  {.method = "POST",
   .path = "/v1/models/unload",
   .what = answered{unload_model, thread_of::parsing},
   .needs = access::admin},
  {.method = "GET",
   .path = "/v1/models/{id}",
   .what = answered{tell_model},
   .speaks_anthropic = endpoint::anthropic::if_asked},
  // Anthropic's
  anthropic("/v1/messages", generated{[](in c) { return message_job(c.body, c.model, c.stop); }}),
  anthropic("/v1/messages/count_tokens", answered{count_message_tokens, thread_of::parsing}),
  {"POST", "/v1/rerank", generated{[](in c) { return rerank_job(c.body, c.model, c.stop); }}}, // Jina's, Cohere's
  {"POST", "/v2/rerank", generated{[](in c) { return rerank_job(c.body, c.model, c.stop); }}},
  {"POST", "/rerank", generated{[](in c) { return rerank_job(c.body, c.model, c.stop); }}},
  // llama.cpp's
  {"POST", "/infill", generated{[](in c) { return infill_job(c.body, c.model, c.stop); }}},
  // vLLM's
  {"POST", "/score", generated{[](in c) { return score_job(c.body, c.model, c.stop); }}},
  {"POST", "/v1/score", generated{[](in c) { return score_job(c.body, c.model, c.stop); }}},
  {"POST", "/tokenize", answered{tokenize, thread_of::parsing}},
  {"POST", "/detokenize", answered{detokenize, thread_of::parsing}},
  {"GET", "/tokenizer_info", answered{tell_tokenizer}},
  {"POST", "/v1/load_lora_adapter", answered{load_variant, thread_of::files}},
  {"POST", "/v1/unload_lora_adapter", answered{unload_variant, thread_of::files}},
  {.method = "GET", .path = "/health", .what = answered{tell_health}, .needs = access::open, .probe = true},
  {.method = "GET",
   .path = "/metrics",
   .what = answered{tell_metrics, thread_of::reports},
   .needs = access::metrics,
   .probe = true},
  // its own
  {"POST", "/v1/requests/{id}/control", answered{control_request, thread_of::parsing}},
  {"GET", "/v1/requests/{id}/events", resumed{}},
  {"GET", "/v1/requests/{id}", answered{tell_request}},
  {"DELETE", "/v1/requests/{id}", answered{cancel_request}},
  {"POST", "/v1/watermark/detect", answered{detect_mark, thread_of::parsing}},
  {"GET", "/v1/ws", upgraded{}},
  {"GET", "/debug/trace", traced{}},
  {.method = "GET",
   .path = "/debug/figures",
   .what = answered{tell_figures, thread_of::parsing},
   .needs = access::metrics},
  {"GET", "/debug/faults", answered{tell_faults}},
  {"POST", "/debug/faults", answered{set_faults, thread_of::reports}},
  // Ollama's
  ollama("POST", "/api/generate",
         generated{[](in c) { return ollama_job(ollama_call::generate, c.body, c.model, c.stop); }, true,
                   [](const field_reader& body) { return ollama_unload_job(ollama_call::generate, body); }}),
  ollama("POST", "/api/chat",
         generated{[](in c) { return ollama_job(ollama_call::chat, c.body, c.model, c.stop); }, true,
                   [](const field_reader& body) { return ollama_unload_job(ollama_call::chat, body); }}),
  ollama("POST", "/api/embed", generated{[](in c) { return ollama_embed_job(c.body, c.model, c.stop); }}),
  ollama("POST", "/api/embeddings", generated{[](in c) { return ollama_embedding_job(c.body, c.model); }}),
  ollama("GET", "/api/tags", answered{list_ollama_models}),
  ollama("GET", "/api/ps", answered{list_ollama_running}),
  ollama("POST", "/api/show", answered{show_ollama_model, thread_of::parsing}),
  ollama("POST", "/api/pull", answered{pull_ollama_model}),
  ollama("GET", "/api/version", answered{tell_ollama_version}),
  // the web page; for clients that want no HTML, Ollama's sign of life
  {.method = "GET", .path = "/", .what = answered{greet}, .needs = access::open},
  {.method = "GET", .path = "/page/{id}", .what = answered{serve_page_file}, .needs = access::open},
});

} // namespace

std::span<const endpoint> endpoints() { return rows; }

std::string as_anthropic(const reply& why, std::string_view request_id) {
  return message_error(why.status, why.complaint, request_id);
}

} // namespace troupe
