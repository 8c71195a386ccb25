#include "api/http/query.hpp"
#include "api/openai/fields/known_fields.hpp"
#include "api/server/answers/answers.hpp"
#include "api/server/answers/request_of.hpp"
#include "runtime/model/default_sampling.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/percent_encoding.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/techniques/model_variants.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

namespace {

/// What requests of the page and of Ollama's API that say nothing are sampled with, and who says so. Those below /v1
/// are, too, if it is the model.
json_object sampling_of(const served_model& model) {
  json_object result;
  for (const auto& [name, value] : named_sampling(default_sampling(model.defaults, sampling_convention::local)))
    result.raw(name, value);
  return result.flag("named_by_model", !model.defaults.sampling_source.empty())
    .text("source", source_of_sampling(model.defaults));
}

/// A model, or a variant of it.
std::string model_object(const served_model& model, const std::string& variant = {}) {
  static const auto started = std::time(nullptr);
  json_object result;
  result.text("id", to_utf8(variant.empty() ? model.id : variant));
  if (!variant.empty())
    result.text("parent", to_utf8(model.id));
  result.text("object", "model")
    .number("created", started)
    .text("owned_by", "troupe")
    .number("max_model_len", model.max_context)
    .flag("schedule_invariant", model.schedule_invariant);
  if (model.generates)
    result.object("sampling", sampling_of(model));
  return result.str();
}

/// The object of a model for Anthropic's clients. What this server does not know of a model is null.
std::string anthropic_model(const served_model& model, const std::string& variant = {}) {
  static const auto started = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&started, &parts);
  const auto created = to_date("%Y-%m-%dT%H:%M:%SZ", parts).value();
  const auto name = to_utf8(variant.empty() ? model.id : variant);
  return json_object()
    .text("type", "model")
    .text("id", name)
    .text("display_name", name)
    .text("created_at", created)
    .text("lifecycle", "active")
    .null("deprecated_at")
    .null("line")
    .null("capabilities")
    .number("max_input_tokens", model.max_context)
    .number("max_tokens", model.max_context)
    .str();
}

/// What is told of a model of several besides.
json_object state_of(const known_model& one) {
  using state = known_model::state;
  json_object result;
  switch (one.now) {
    case state::ready: result.text("value", "loaded"); break;
    case state::waiting:
    case state::loading: result.text("value", "loading"); break;
    case state::unloading: result.text("value", "unloading"); break;
    case state::unloaded:
    case state::failed: result.text("value", "unloaded"); break; // as llama.cpp's router has it
  }
  if (one.now == state::failed)
    result.flag("failed", true).text("error", to_utf8(one.line));
  if (one.now == state::loading && one.total_bytes > 0)
    result.number("progress", static_cast<double>(one.done_bytes) / static_cast<double>(one.total_bytes));
  if (one.model)
    result.number("weight_bytes", one.model->weight_bytes).number("kv_cache_bytes", one.model->kv_cache_bytes);
  if (one.until)
    result.number("unloads_at", std::chrono::system_clock::to_time_t(*one.until));
  return result;
}

struct listed_model {
  std::string id;
  std::shared_ptr<const served_model> model; // null: it is not loaded
  std::string variant = {};
  std::optional<known_model> known = {}; // of several
};

std::vector<listed_model> all_models(const call& c) {
  std::vector<listed_model> all;
  for (const auto& one : c.models.known()) {
    all.push_back({one.name, one.model, {}, c.engine.is_plural() ? std::optional(one) : std::nullopt});
    if (one.model)
      for (const auto* each : variants_of(one.model->techniques))
        for (const auto& name : each->names())
          all.push_back({name, one.model, name});
  }
  return all;
}

/// OpenAI's object.
std::string object_of(const listed_model& one) {
  if (!one.known)
    return model_object(*one.model, one.variant);
  std::vector<std::string> aliases;
  for (const auto& alias : one.known->aliases)
    aliases.push_back(json_text(to_utf8(alias)));
  const auto more = json_object().list("aliases", aliases).object("status", state_of(*one.known)).str().substr(1);
  auto object = one.model
    ? model_object(*one.model)
    : json_object().text("id", to_utf8(one.id)).text("object", "model").text("owned_by", "troupe").str();
  object.back() = ',';
  return object + more;
}

std::string anthropic_object_of(const listed_model& one) {
  served_model alone; // what is known of one that is not loaded
  alone.id = one.id;
  return anthropic_model(one.model ? *one.model : alone, one.variant);
}

/// A page of the list: `limit`, `after_id`, `before_id`.
reply list_for_anthropic(const call& c) {
  const auto all = all_models(c);
  const auto limit = query_limit(c.query, 20, 1000);
  const auto place_of = [&](std::string_view key) -> std::optional<std::size_t> {
    const auto id = query_parameter(c.query, key);
    if (!id)
      return {};
    const auto found = std::ranges::find(all, percent_decoded(*id), &listed_model::id);
    if (found == all.end())
      throw failure(errc::bad_request, '`' + std::string(key) + "` names no model of this server", std::string(key));
    return static_cast<std::size_t>(found - all.begin());
  };
  std::size_t first = 0, last = all.size();
  bool more = false;
  if (const auto before = place_of("before_id")) {
    last = *before;
    first = last - std::min(last, limit);
    more = first > 0;
  } else {
    if (const auto after = place_of("after_id"))
      first = *after + 1;
    last = std::min(all.size(), first + limit);
    more = last < all.size();
  }
  std::vector<std::string> page;
  for (auto i = first; i < last; ++i)
    page.push_back(anthropic_object_of(all[i]));
  return reply::json(json_object()
                       .raw("data", json_list(page))
                       .flag("has_more", more)
                       .text_or_null("first_id", page.empty() ? "" : to_utf8(all[first].id))
                       .text_or_null("last_id", page.empty() ? "" : to_utf8(all[last - 1].id))
                       .str());
}

/// The request to change adapters, which are the variants that clients may change.
struct change : request_of {
  change(const call& c, std::span<const std::string_view> fields)
    : request_of(c), notes(notes_on_members(body, model->unknown, fields)) {
    for (auto* each : variants_of(model->techniques))
      if (each->changeable())
        of = each;
    if (of == nullptr)
      throw failure(errc::not_found, "clients may change this server's adapters only if it runs with --lora-endpoints");
    name = text("lora_name");
  }

  std::string text(const char* key) const {
    const auto found = body.text(key);
    if (!found || found->empty())
      body.refuse(key, "is required");
    if (found->find('\0') != found->npos)
      body.refuse(key, "must have no zero bytes"); // paths end there
    return std::string(*found);
  }

  /// vLLM's sentence.
  reply succeeded(const char* how, const std::string& remarks = {}) const {
    auto result = reply::text("Success: LoRA adapter '" + to_utf8(name) + "' " + how + " successfully." + remarks);
    result.notes = notes;
    return result;
  }

  std::vector<std::string> notes;
  std::string name;
  model_variants* of = nullptr;
};

} // namespace

reply list_models(const call& c) {
  if (c.as_anthropic)
    return list_for_anthropic(c);
  std::vector<std::string> all;
  for (const auto& one : all_models(c))
    all.push_back(object_of(one));
  return reply::json(json_object().text("object", "list").raw("data", json_list(all)).str());
}

namespace {

/// Whether requests that name `name` mean it, also while it is not loaded.
bool is_called(const listed_model& one, std::string_view name) {
  if (name == one.id)
    return true;
  if (one.model)
    return one.variant.empty() && is_name_of(*one.model, name);
  return one.known && is_name_of(*one.known, name); // else it has just gone
}

} // namespace

reply tell_model(const call& c) {
  const std::string name(c.id);
  for (const auto& one : all_models(c))
    if (is_called(one, name))
      return reply::json(c.as_anthropic ? anthropic_object_of(one) : object_of(one));
  throw failure(errc::not_found, "the model `" + name + "` does not exist", "model");
}

namespace {

/// The model of an operator's request, once what it asks for has come.
template <class Ask>
reply waited_for(const call& c, const Ask& ask) {
  const auto document = json::document::parse(c.body, "the body", errc::bad_request);
  const field_reader body(document.root());
  notes_on_members(body, unknown_fields::reject, std::array<std::string_view, 1>{"model"});
  const auto name = body.text("model");
  if (!name || name->empty())
    body.refuse("model", "is required");
  if (!c.waited)
    throw must_wait{ask(*name)};
  return reply::json(json_object().flag("success", true).str());
}

} // namespace

reply load_model(const call& c) {
  return waited_for(c, [&](std::string_view name) { return c.engine.load(name, true); });
}

reply unload_model(const call& c) {
  return waited_for(c, [&](std::string_view name) { return c.engine.unload(name); });
}

reply load_variant(const call& c) {
  const change asked(c, std::array<std::string_view, 2>{"lora_name", "lora_path"});
  std::string remarks;
  try {
    for (const auto& line : asked.of->load(asked.name, asked.text("lora_path")))
      remarks += ' ' + to_utf8(line) + '.';
  } catch (const failure& f) { // the client's file, not the server's
    const auto& why = f.what_failed();
    const bool of_file = why.code != errc::bad_request || why.param.empty(); // `param` may be a member of its JSON
    throw failure(why.code == errc::bad_file ? errc::bad_request : why.code, why.message,
                  of_file ? "lora_path" : why.param);
  }
  return asked.succeeded("added", remarks);
}

reply unload_variant(const call& c) {
  const change asked(c, std::array<std::string_view, 2>{"lora_name", "lora_int_id"});
  asked.of->unload(asked.name);
  return asked.succeeded("removed");
}

} // namespace troupe
