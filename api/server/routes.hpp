// Which endpoint a path and method mean, and the answers that take no generation. No sockets here: `reply` is what a
// connection then writes. Called on worker threads and strands.
#pragma once

#include "api/openai/service.hpp"

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

class metrics;

struct reply {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string_view code{}; // of an error, for the log
  std::string param{};

  static reply json(std::string body, unsigned status = 200);
  /// With Retry-After or WWW-Authenticate where the status calls for it.
  static reply of(const error& what);
};

enum class endpoint : std::uint8_t {
  completions,
  chat,
  models,
  model,
  tokenize,
  detokenize,
  health,
  metrics,
  websocket
};

struct route {
  endpoint to;
  std::string argument; // a model's id
};

/// The route, or the reply that refuses (404, or 405 with Allow). HEAD is allowed where GET is; a query is ignored.
std::variant<route, reply> find_route(std::string_view method, std::string_view target);

/// The methods of a path as Allow lists them; empty for a path that does not exist.
std::string allowed_methods(std::string_view target);

/// Answers every endpoint but generation and WebSocket. `body` is of a POST. Throws failure; failure(cancelled) soon
/// after `stop` was asked for.
reply answer(const route& to, std::string_view body, const service& engine, const metrics& counted,
             const std::stop_token& stop = {});

/// What the exception in flight says; for catch (...) at the edge of a worker.
error caught_error();

/// The served model. Throws failure(unavailable) naming what is still being done.
std::shared_ptr<const served_model> ready_model(const service& engine);

} // namespace troupe
