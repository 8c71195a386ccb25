#include "api/server/routes.hpp"

#include "api/http/request_scope.hpp"
#include "api/ollama/ollama_models.hpp"
#include "api/openai/fields/watermark_fields.hpp"
#include "api/openai/json_object.hpp"
#include "api/openai/openai_request.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/responses/input_page.hpp"
#include "api/openai/responses/response_request.hpp"
#include "api/openai/responses/response_store.hpp"
#include "api/server/metrics.hpp"
#include "runtime/adapters/adapter_library.hpp"
#include "runtime/support/json_text.hpp"
#include "runtime/support/utf8.hpp"

#include <array>
#include <charconv>
#include <ctime>
#include <new>
#include <optional>

namespace troupe {

namespace {

struct known_path {
  std::string_view path;
  std::string_view method;
  endpoint to;
};

constexpr auto known_paths = std::to_array<known_path>({
  {"/v1/completions", "POST", endpoint::completions},
  {"/v1/chat/completions", "POST", endpoint::chat},
  {"/v1/embeddings", "POST", endpoint::embeddings},
  {"/v1/responses", "POST", endpoint::responses},
  {"/v1/responses/input_tokens", "POST", endpoint::count_response},
  {"/v1/responses/compact", "POST", endpoint::compact_response},
  {"/v1/models", "GET", endpoint::models},
  {"/tokenize", "POST", endpoint::tokenize},
  {"/detokenize", "POST", endpoint::detokenize},
  {"/v1/watermark/detect", "POST", endpoint::detect_watermark},
  {"/tokenizer_info", "GET", endpoint::tokenizer_info},
  {"/v1/load_lora_adapter", "POST", endpoint::load_adapter},
  {"/v1/unload_lora_adapter", "POST", endpoint::unload_adapter},
  {"/api/generate", "POST", endpoint::ollama_generate},
  {"/api/chat", "POST", endpoint::ollama_chat},
  {"/api/embed", "POST", endpoint::ollama_embed},
  {"/api/embeddings", "POST", endpoint::ollama_embeddings},
  {"/api/tags", "GET", endpoint::ollama_tags},
  {"/api/ps", "GET", endpoint::ollama_ps},
  {"/api/show", "POST", endpoint::ollama_show},
  {"/api/pull", "POST", endpoint::ollama_pull},
  {"/api/version", "GET", endpoint::ollama_version},
  {"/", "GET", endpoint::greeting},
  {"/health", "GET", endpoint::health},
  {"/metrics", "GET", endpoint::metrics},
  {"/v1/ws", "GET", endpoint::websocket},
});
constexpr std::string_view model_prefix = "/v1/models/", response_prefix = "/v1/responses/",
                           input_suffix = "/input_items", cancel_suffix = "/cancel";

std::string decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const auto digits = text.substr(std::min(i + 1, text.size()), 2);
    if (text[i] == '%' && digits.size() == 2 &&
        std::from_chars(digits.data(), digits.data() + 2, byte, 16).ptr == digits.data() + 2) {
      result += static_cast<char>(byte);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return to_utf8(result);
}

std::string_view path_of(std::string_view target) { return target.substr(0, target.find_first_of("?#")); }

struct found_path {
  route to;
  std::string_view method;
};

/// What is at a path, by method.
std::vector<found_path> look_up(std::string_view path) {
  for (const auto& known : known_paths)
    if (known.path == path)
      return {{{known.to, {}, {}}, known.method}};
  if (path.starts_with(model_prefix) && path.size() > model_prefix.size())
    return {{{endpoint::model, decoded(path.substr(model_prefix.size())), {}}, "GET"}};
  if (!path.starts_with(response_prefix) || path.size() == response_prefix.size())
    return {};
  const auto id = path.substr(response_prefix.size());
  const auto before = [&](std::string_view suffix) { return decoded(id.substr(0, id.size() - suffix.size())); };
  if (id.ends_with(input_suffix))
    return {{{endpoint::response_input, before(input_suffix), {}}, "GET"}};
  if (id.ends_with(cancel_suffix))
    return {{{endpoint::cancel_response, before(cancel_suffix), {}}, "POST"}};
  return {{{endpoint::response, decoded(id), {}}, "GET"}, {{endpoint::delete_response, decoded(id), {}}, "DELETE"}};
}

/// The served model, or an adapter of it.
std::string model_object(const served_model& model, const std::string& adapter = {}) {
  static const auto started = std::time(nullptr);
  const auto parent = adapter.empty() ? "" : ",\"parent\":" + json_text(to_utf8(model.id));
  return "{\"id\":" + json_text(to_utf8(adapter.empty() ? model.id : adapter)) + parent +
    ",\"object\":\"model\",\"created\":" + std::to_string(started) +
    ",\"owned_by\":\"troupe\",\"max_model_len\":" + std::to_string(model.max_context) +
    ",\"schedule_invariant\":" + (model.schedule_invariant ? "true" : "false") + '}';
}

std::string model_list(const served_model& model) {
  auto all = model_object(model);
  if (model.adapters)
    for (const auto& name : model.adapters->names())
      all += ',' + model_object(model, name);
  return "{\"object\":\"list\",\"data\":[" + all + "]}";
}

/// vLLM's endpoints: {"lora_name", "lora_path"} and {"lora_name"}.
reply change_adapters(endpoint to, const field_reader& body, const served_model& model) {
  if (!model.lora_endpoints || !model.adapters)
    throw failure(errc::not_found, "clients may change this server's adapters only if it runs with --lora-endpoints");
  const auto wanted = [&](const char* key) {
    const auto text = body.text(key);
    if (!text || text->empty())
      body.refuse(key, "is required");
    if (text->find('\0') != text->npos)
      body.refuse(key, "must have no zero bytes"); // paths end there
    return std::string(*text);
  };
  const auto name = wanted("lora_name");
  const bool loads = to == endpoint::load_adapter;
  std::string remarks;
  if (loads)
    try {
      for (const auto& line : model.adapters->load(name, wanted("lora_path")))
        remarks += ' ' + to_utf8(line) + '.';
    } catch (const failure& f) { // the client's file, not the server's
      const auto& why = f.what_failed();
      const bool of_file = why.code != errc::bad_request || why.param.empty(); // `param` may be a member of its JSON
      throw failure(why.code == errc::bad_file ? errc::bad_request : why.code, why.message,
                    of_file ? "lora_path" : why.param);
    }
  else
    model.adapters->unload(name);
  return {200,
          "Success: LoRA adapter '" + to_utf8(name) + (loads ? "' added successfully." : "' removed successfully.") +
            remarks,
          "text/plain; charset=utf-8",
          {}};
}

/// What clients that tokenise over HTTP must know besides, as vLLM's.
std::string tokenizer_object(const served_model& model) {
  if (!model.encode)
    throw failure(errc::not_found, "this model has no tokenizer");
  const auto text = [](const std::optional<std::string>& token) { return token ? json_text(to_utf8(*token)) : "null"; };
  return "{\"bos_token\":" + text(model.bos_token) + ",\"eos_token\":" + text(model.eos_token) +
    ",\"model_max_length\":" + std::to_string(model.max_context) + '}';
}

reply health(const service& engine) {
  const auto status = engine.status();
  if (status.ready)
    return reply::json("{\"status\":\"ok\"}");
  const auto done = static_cast<double>(status.done_bytes), total = static_cast<double>(status.total_bytes);
  const auto share = total > 0 ? done / total : 0;
  auto result = reply::json("{\"status\":" + json_text(status.state) + ",\"progress\":" + json_number(share) +
                              ",\"done_bytes\":" + std::to_string(status.done_bytes) +
                              ",\"total_bytes\":" + std::to_string(status.total_bytes) +
                              ",\"detail\":" + json_text(to_utf8(status.line)) + '}',
                            503);
  if (status.state == "loading")
    result.headers.emplace_back("Retry-After", "1");
  return result;
}

} // namespace

reply reply::json(std::string body, unsigned status) { return {status, std::move(body), "application/json", {}}; }

reply reply::of(const error& what) {
  auto result = json(error_body(what), status_of(what.code));
  result.code = code_of(what);
  result.param = what.param;
  result.complaint = what.message;
  if (result.status == 429 || result.status == 503)
    result.headers.emplace_back("Retry-After", "1");
  if (result.status == 401)
    result.headers.emplace_back("WWW-Authenticate", "Bearer");
  return result;
}

std::string allowed_methods(std::string_view target) {
  std::string result;
  for (const auto& found : look_up(path_of(target)))
    result += std::string(found.method) + (found.method == "GET" ? ", HEAD, " : ", ");
  return result.empty() ? result : result + "OPTIONS";
}

std::variant<route, reply> find_route(std::string_view method, std::string_view target) {
  const auto path = path_of(target);
  auto found = look_up(path);
  if (found.empty())
    return reply::of({errc::not_found, "there is nothing at " + to_utf8(path), {}});
  std::string methods;
  for (auto& each : found) {
    if (method == each.method || (method == "HEAD" && each.method == "GET")) {
      if (each.to.to == endpoint::response_input)
        each.to.query = target.substr(path.size());
      return std::move(each.to);
    }
    methods += (methods.empty() ? "" : " or ") + std::string(each.method);
  }
  auto result = reply::of({errc::bad_request, to_utf8(path) + " takes " + methods + ", not " + to_utf8(method), {}});
  result.status = 405;
  result.headers.emplace_back("Allow", allowed_methods(target));
  return result;
}

std::optional<reply> reply_while_draining(const route& to) {
  if (to.to == endpoint::metrics)
    return std::nullopt;
  if (to.to == endpoint::health)
    return reply::json("{\"status\":\"draining\"}", 503);
  return reply::of(server_stops());
}

bool is_stored_response(endpoint to) {
  return to == endpoint::response || to == endpoint::response_input || to == endpoint::delete_response ||
    to == endpoint::cancel_response;
}

reply answer_stored(const route& to, response_store& stored, std::size_t owner) {
  const auto missing = failure(errc::not_found, "there is no response `" + to.argument + "`, or not any more", "id");
  if (to.to == endpoint::delete_response) {
    if (!stored.remove(owner, to.argument))
      throw missing;
    return reply::json(json_object().text("id", to.argument).text("object", "response").flag("deleted", true).str());
  }
  const auto found = stored.find(owner, to.argument);
  if (!found)
    throw missing;
  if (to.to == endpoint::response)
    return reply::json(found->body);
  if (to.to == endpoint::cancel_response)
    throw failure(errc::bad_request,
                  "the response `" + to.argument +
                    "` cannot be cancelled: only those in the background can, and this server has none",
                  "id");
  return reply::json(input_page(found->input, to.query));
}

reply answer_count(std::string_view body, const service& engine, response_store& stored, std::size_t owner,
                   const std::stop_token& stop) {
  const auto model = ready_model(engine);
  const auto parsed = json::document::parse(body, "the body", errc::bad_request);
  const auto count = count_input_tokens(field_reader(parsed.root()), *model, stored, owner, stop);
  return reply::json(json_object().text("object", "response.input_tokens").number("input_tokens", count).str());
}

error caught_error() {
  try {
    throw;
  } catch (const failure& f) {
    return f.what_failed();
  } catch (const std::bad_alloc&) {
    return {errc::out_of_memory, "there is not enough memory for this request", {}};
  } catch (const std::exception& e) {
    return {errc::internal, e.what(), {}};
  }
}

std::shared_ptr<const served_model> ready_model(const service& engine) {
  if (auto model = engine.model())
    return model;
  const auto status = engine.status();
  throw failure(errc::unavailable,
                "the model is not ready (" + status.state + (status.line.empty() ? "" : ": " + status.line) +
                  "); /health shows the progress");
}

reply answer(const route& to, std::string_view body, const service& engine, const metrics& counted,
             const std::stop_token& stop) {
  if (to.to == endpoint::health)
    return health(engine);
  if (to.to == endpoint::metrics)
    return {200, counted.text(), "text/plain; version=0.0.4; charset=utf-8", {}};
  if (to.to == endpoint::greeting) // by which Ollama's clients see that a server is there
    return {200, "Ollama is running", "text/plain; charset=utf-8", {}};
  if (to.to == endpoint::ollama_version)
    return reply::json(ollama_version());
  if (to.to == endpoint::compact_response)
    throw failure(errc::not_found,
                  "conversations are not compacted by this server: ask the model for a summary, or send `truncation` "
                  "\"auto\" to drop the oldest items");
  const auto model = ready_model(engine);
  switch (to.to) {
    case endpoint::models: return reply::json(model_list(*model));
    case endpoint::model:
      if (model->adapters && model->adapters->find(to.argument))
        return reply::json(model_object(*model, to.argument));
      if (to.argument != model->id)
        throw failure(errc::not_found, "the model `" + to.argument + "` does not exist", "model");
      return reply::json(model_object(*model));
    case endpoint::tokenizer_info: return reply::json(tokenizer_object(*model));
    case endpoint::load_adapter:
    case endpoint::unload_adapter: {
      const auto parsed = json::document::parse(body, "the body", errc::bad_request);
      return change_adapters(to.to, field_reader(parsed.root()), *model);
    }
    case endpoint::tokenize: {
      const auto parsed = json::document::parse(body, "the body", errc::bad_request);
      const auto ids = parse_tokenize(field_reader(parsed.root()), *model, stop);
      return reply::json("{\"tokens\":" + json_ids(ids) + ",\"count\":" + std::to_string(ids.size()) + '}');
    }
    case endpoint::detokenize: {
      const auto parsed = json::document::parse(body, "the body", errc::bad_request);
      const auto text = parse_detokenize(field_reader(parsed.root()), *model);
      return reply::json("{\"prompt\":" + json_text(to_utf8(text)) + '}');
    }
    case endpoint::ollama_tags: return reply::json(ollama_tags(*model));
    case endpoint::ollama_ps: return reply::json(ollama_running(*model));
    case endpoint::ollama_show: {
      const auto parsed = json::document::parse(body, "the body", errc::bad_request);
      return reply::json(ollama_show(field_reader(parsed.root()), *model));
    }
    case endpoint::ollama_pull: {
      const auto parsed = json::document::parse(body, "the body", errc::bad_request);
      const field_reader asked(parsed.root());
      const auto lines = ollama_pull(asked, *model);
      if (!asked.boolean("stream").value_or(true))
        return reply::json(lines.back());
      std::string all;
      for (const auto& line : lines)
        all += line + '\n';
      return {200, all, "application/x-ndjson", {}};
    }
    case endpoint::detect_watermark: {
      const auto parsed = json::document::parse(body, "the body", errc::bad_request);
      const auto asked = parse_detection(field_reader(parsed.root()), *model);
      return reply::json(detection_object(*asked.mark, watermarks::detect(*asked.mark, asked.tokens)));
    }
    default: throw failure(errc::internal, "no answer is known for this endpoint");
  }
}

} // namespace troupe
