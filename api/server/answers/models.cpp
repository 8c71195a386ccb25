#include "api/openai/fields/known_fields.hpp"
#include "api/openai/json_object.hpp"
#include "api/server/answers/answers.hpp"
#include "api/server/answers/request_of.hpp"
#include "runtime/adapters/adapter_library.hpp"
#include "runtime/support/utf8.hpp"

#include <array>
#include <ctime>
#include <vector>

namespace troupe {

namespace {

/// A model, or an adapter of it.
std::string model_object(const served_model& model, const std::string& adapter = {}) {
  static const auto started = std::time(nullptr);
  json_object result;
  result.text("id", to_utf8(adapter.empty() ? model.id : adapter));
  if (!adapter.empty())
    result.text("parent", to_utf8(model.id));
  return result.text("object", "model")
    .number("created", started)
    .text("owned_by", "troupe")
    .number("max_model_len", model.max_context)
    .flag("schedule_invariant", model.schedule_invariant)
    .str();
}

/// The request to change adapters.
struct change : request_of {
  change(const call& c, std::span<const std::string_view> fields)
    : request_of(c), notes(notes_on_members(body, fields)) {
    if (!model->lora_endpoints || !model->adapters)
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
};

} // namespace

reply list_models(const call& c) {
  std::vector<std::string> all;
  for (const auto& model : c.models.all()) {
    all.push_back(model_object(*model));
    if (model->adapters)
      for (const auto& name : model->adapters->names())
        all.push_back(model_object(*model, name));
  }
  return reply::json(json_object().text("object", "list").raw("data", json_list(all)).str());
}

reply tell_model(const call& c) {
  const std::string name(c.id);
  for (const auto& model : c.models.all()) {
    if (model->adapters && model->adapters->find(name))
      return reply::json(model_object(*model, name));
    if (name == model->id)
      return reply::json(model_object(*model));
  }
  throw failure(errc::not_found, "the model `" + name + "` does not exist", "model");
}

reply load_adapter(const call& c) {
  const change asked(c, std::array<std::string_view, 2>{"lora_name", "lora_path"});
  std::string remarks;
  try {
    for (const auto& line : asked.model->adapters->load(asked.name, asked.text("lora_path")))
      remarks += ' ' + to_utf8(line) + '.';
  } catch (const failure& f) { // the client's file, not the server's
    const auto& why = f.what_failed();
    const bool of_file = why.code != errc::bad_request || why.param.empty(); // `param` may be a member of its JSON
    throw failure(why.code == errc::bad_file ? errc::bad_request : why.code, why.message,
                  of_file ? "lora_path" : why.param);
  }
  return asked.succeeded("added", remarks);
}

reply unload_adapter(const call& c) {
  const change asked(c, std::array<std::string_view, 2>{"lora_name", "lora_int_id"});
  asked.model->adapters->unload(asked.name);
  return asked.succeeded("removed");
}

} // namespace troupe
