#include "api/ollama/ollama_models.hpp"

#include "api/ollama/ollama_answer.hpp"
#include "api/ollama/ollama_request.hpp"
#include "api/openai/json_object.hpp"
#include "runtime/support/utf8.hpp"

#include <array>
#include <cstdio>
#include <utility>

namespace troupe {

namespace {

/// "1.2B"
std::string parameter_size(std::size_t parameters) {
  constexpr auto units = std::to_array<std::pair<double, const char*>>({{1e9, "B"}, {1e6, "M"}, {1e3, "K"}, {1, ""}});
  for (const auto& [size, name] : units)
    if (static_cast<double>(parameters) >= size) {
      char text[32];
      std::snprintf(text, sizeof text, size > 1 ? "%.1f%s" : "%.0f%s", static_cast<double>(parameters) / size, name);
      return text;
    }
  return "0";
}

std::string details_of(const served_model& model) {
  const auto family = to_utf8(model.family);
  return json_object()
    .text("parent_model", "")
    .text("format", "")
    .text("family", family)
    .raw("families", json_list(std::array{json_text(family)}))
    .text("parameter_size", parameter_size(model.parameters))
    .text("quantization_level", to_utf8(model.weights))
    .str();
}

/// The model's entry in a list, to which more is added.
json_object entry_of(const served_model& model) {
  const auto name = to_utf8(model.id);
  json_object entry;
  entry.text("name", name)
    .text("model", name)
    .number("size", model.weight_bytes)
    .text("digest", "")
    .raw("details", details_of(model));
  return entry;
}

std::string list_of(const json_object& entry) {
  return json_object().raw("models", json_list(std::array{entry.str()})).str();
}

} // namespace

std::string ollama_tags(const served_model& model) {
  static const auto started = ollama_time();
  return list_of(entry_of(model).text("modified_at", started));
}

std::string ollama_running(const served_model& model) {
  const auto in_vram = model.device.starts_with("cpu") ? 0 : model.weight_bytes;
  return list_of(entry_of(model)
                   .text("expires_at", "9999-12-31T23:59:59Z") // it never is unloaded
                   .number("size_vram", in_vram)
                   .number("context_length", model.max_context));
}

std::string ollama_show(const field_reader& body, const served_model& model) {
  ollama_model_name(body, model);
  const auto family = to_utf8(model.family);
  std::vector<std::string> capabilities{json_text("completion")};
  if (model.embeddings.how != pooling::none)
    capabilities.push_back(json_text("embedding"));
  if (model.render && model.format.calls)
    capabilities.push_back(json_text("tools"));
  if (model.render && model.format.reasoning)
    capabilities.push_back(json_text("thinking"));
  return json_object()
    .text("modelfile", "")
    .text("parameters", "")
    .text("template", "")
    .raw("details", details_of(model))
    .raw("model_info",
         json_object()
           .text("general.architecture", family)
           .text("general.basename", to_utf8(model.id))
           .number("general.parameter_count", model.parameters)
           .number(family + ".context_length", model.max_context)
           .number(family + ".embedding_length", model.hidden)
           .number(family + ".vocab_size", model.vocab_size)
           .str())
    .raw("capabilities", json_list(capabilities))
    .str();
}

std::string ollama_version() { return json_object().text("version", TROUPE_VERSION).str(); }

} // namespace troupe
