// An endpoint is one row of a table (endpoints.cpp). What the server does with a request before and behind its function
// (methods, keys, types, threads, errors, draining) it reads there.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/server/wire/reply.hpp"
#include "api/service/service.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>

namespace troupe {

class metrics;
class request_table;
class response_store;
class served_models;

/// What a function that answers may use; it lives as long as the call.
struct call {
  std::string_view body = {};   // of a POST
  std::string_view id = {};     // what stands for {id} in the path, decoded
  std::string_view query = {};  // "?limit=3"; empty: none
  std::string_view accept = {}; // the header
  bool page = true;             // server_options::page
  bool fault_injection = false; // server_options::fault_injection
  service& engine;
  const served_models& models;
  const metrics& counted;
  response_store& stored;
  const request_table& requests;
  std::size_t owner = 0;   // index of the request's API key
  std::string client = {}; // who asks, for what is shared out among clients (server_context::client_of)
  bool draining = false;
  bool as_anthropic = false; // the client speaks Anthropic's API
  bool waited = false;       // called before, it threw must_wait, and what it waited for has come
  std::stop_token stop = {};
};

/// What a parser of generations may use; it lives as long as the call.
struct generation_call {
  const field_reader& body;
  std::shared_ptr<const served_model> model; // that the body names
  response_store& stored;
  std::size_t owner = 0; // as above; a response that is to be stored goes to `stored` under it
  std::string client = {};
  std::stop_token stop = {};
};

/// On which thread a function runs. Except on a strand, the client is watched meanwhile, and its leave stops the call.
enum class thread_of : std::uint8_t {
  strand,  // of the connection: at once, even while every worker is busy. For what takes no time
  parsing, // workers for short or for long requests, by the size of the body
  files,   // workers for what may take seconds to read or compute; none sleeps there
  reports, // a worker that asks the engine; the client is not watched
};

/// Answered by a function. It throws failure, failure(cancelled) soon after a stop request, and must_wait on workers.
struct answered {
  reply (*by)(const call&);
  thread_of on = thread_of::strand;
};
/// Makes generations, which the engine serves: the function parses the body, on a worker. Throws as above.
struct generated {
  generation_job (*parsed_by)(const generation_call&);
  bool as_lines = false; // its streams are lines of JSON, not events
  /// What answers a request whose model is not loaded and need not be; without a writer: it must be.
  generation_job (*without_model)(const field_reader& body) = nullptr;
};
/// To a WebSocket: with frames of this server's own, or with OpenAI's responses.
struct upgraded {
  bool to_responses = false;
};

/// The next steps of the engine, which take as long as the client asks for.
struct traced {};

/// The rest of a stream whose connection was lost, by the id of its request or answer.
struct resumed {
  reply (*otherwise)(const call&) = nullptr; // the answer if the query does not ask for `stream=true`; null: none
};

enum class access : std::uint8_t {
  key,     // any API key, if there are keys
  open,    // everybody
  metrics, // as `key`, or with the key of metrics alone
  admin,   // the operator's key alone
};

struct endpoint {
  std::string_view method; // GET answers HEAD, too
  std::string_view path;   // `{id}` stands for one or more characters, slashes among them
  using function = std::variant<answered, generated, upgraded, traced, resumed>;
  function what;
  access needs = access::key;
  /// Polled continuously: not worth a log line, and answered while the server drains.
  bool probe = false;
  /// Whether a POST may say that it is something else than JSON, or not say what it is.
  bool any_content_type = false;
  error_writer error_format = nullptr;
  /// Anthropic's: its clients look for the request's id in `request-id`. Rows that others have, too, are so where the
  /// client names a version of Anthropic's API.
  enum class anthropic : std::uint8_t { no, if_asked, always } speaks_anthropic = anthropic::no;
};

/// Errors in Anthropic's format.
std::string as_anthropic(const reply& why, std::string_view request_id);

/// All rows. Of paths that fit several rows, the first decides.
std::span<const endpoint> endpoints();

struct found_endpoint {
  const endpoint* row = nullptr; // never null
  std::string id;
  std::string query;
};

/// The row for a request, or a 404 or 405 (with Allow).
std::variant<found_endpoint, reply> find_endpoint(std::string_view method, std::string_view target);

/// The value of Allow for a path, or of all paths for "*"; empty if there is no such path.
std::string allowed_methods(std::string_view target);

/// In which format errors at `target` are written, even where no endpoint is: as those of endpoints that begin alike.
error_writer error_format_at(std::string_view target);

/// "POST /v1/completions, ...", for --help, in lines of at most `width` characters.
std::string list_endpoints(std::size_t width);

} // namespace troupe
