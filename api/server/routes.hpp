// Maps paths and methods to endpoints, and answers the endpoints that generate nothing. Knows no sockets: connections
// write the `reply`. Called on worker threads and strands.
#pragma once

#include "api/openai/service.hpp"

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

class metrics;
class response_store;

struct reply {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  /// An error's code and field, for the log.
  std::string_view code{};
  std::string param{};
  std::string complaint{}; // its sentence

  static reply json(std::string body, unsigned status = 200);
  /// Adds Retry-After or WWW-Authenticate if the status requires it.
  static reply of(const error& what);
};

enum class endpoint : std::uint8_t {
  completions,
  chat,
  embeddings,
  responses,
  response,
  response_input,
  delete_response,
  cancel_response,
  count_response,   // the tokens of its input
  compact_response, // told to be missing
  models,
  model,
  tokenize,
  detokenize,
  detect_watermark,
  tokenizer_info,
  load_adapter,
  unload_adapter,
  ollama_generate,
  ollama_chat,
  ollama_embed,
  ollama_embeddings,
  ollama_tags,
  ollama_ps,
  ollama_pull,
  ollama_show,
  ollama_version,
  greeting,
  health,
  metrics,
  websocket
};

struct route {
  endpoint to;
  std::string argument; // the id in /v1/models/{id}, /v1/responses/{id}
  std::string query;    // of /v1/responses/{id}/input_items
};

/// The route, or a 404 or 405 (with Allow). HEAD is allowed wherever GET is; most queries are ignored.
std::variant<route, reply> find_route(std::string_view method, std::string_view target);

/// The value of Allow for a path; empty if there is no such path.
std::string allowed_methods(std::string_view target);

/// Answers every endpoint that makes no job, except stored responses and WebSocket. `body` is the body of a POST.
/// Throws failure, and failure(cancelled) soon after a stop request.
reply answer(const route& to, std::string_view body, const service& engine, const metrics& counted,
             const std::stop_token& stop = {});

/// What a draining server says instead of an answer; nothing if it answers.
std::optional<reply> reply_while_draining(const route& to);

/// Whether the endpoint is about a response that was stored.
bool is_stored_response(endpoint to);

/// Tells, deletes or refuses to cancel a stored response of `owner`. Throws failure.
reply answer_stored(const route& to, response_store& stored, std::size_t owner);

/// Answers POST /v1/responses/input_tokens. Throws failure, and failure(cancelled) soon after a stop request.
reply answer_count(std::string_view body, const service& engine, response_store& stored, std::size_t owner,
                   const std::stop_token& stop);

/// The exception in flight as an error. For catch (...) at the edge of a worker.
error caught_error();

/// The served model. Throws failure(unavailable) with the progress of loading.
std::shared_ptr<const served_model> ready_model(const service& engine);

} // namespace troupe
