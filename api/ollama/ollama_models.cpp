#include "api/ollama/ollama_models.hpp"

#include "api/ollama/ollama_answer.hpp"
#include "api/ollama/ollama_request.hpp"
#include "api/openai/chat_messages.hpp"
#include "runtime/model/default_sampling.hpp"
#include "runtime/support/files/checksum.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <span>
#include <utility>

namespace troupe {

namespace {

/// The release of Ollama whose API this is, as clients ask what a server can do by it.
constexpr std::string_view modelled_version = "0.12.11";

/// "1.2B"
std::string parameter_size(std::size_t parameters) {
  constexpr auto units = std::to_array<std::pair<double, const char*>>({{1e9, "B"}, {1e6, "M"}, {1e3, "K"}, {1, ""}});
  for (const auto& [size, name] : units)
    if (static_cast<double>(parameters) >= size)
      return to_fixed(static_cast<double>(parameters) / size, size > 1 ? 1 : 0) + name;
  return {}; // not known
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

std::string name_of(const known_model& one) { return one.model ? one.model->id : one.name; }

/// On the disk, as far as that is known; else in memory.
std::uint64_t size_of(const known_model& one) {
  return one.files.bytes > 0 || !one.model ? one.files.bytes : one.model->weight_bytes;
}

/// 64 hexadecimal digits, as Ollama has them, by which clients tell models apart: of the model's name and size rather
/// than of its weights, which would have to be read; the same whether it is loaded or not.
std::string digest_of(const known_model& one) {
  const auto text = name_of(one) + '\n' + std::to_string(size_of(one));
  std::string result;
  for (int part = 0; part < 4; ++part) {
    const auto of_part = text + ' ' + std::to_string(part);
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx",
                  static_cast<unsigned long long>(checksum::of_chunk(std::as_bytes(std::span(of_part)))));
    result += digits;
  }
  return result;
}

/// Whether the template shows the model its tools, by rendering one.
bool shows_tools(const served_model& model) {
  if (!model.render || !model.format.calls)
    return false;
  constexpr std::string_view name = "probe_7391502846";
  const auto body = json::document::parse(
    R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":")" +
      std::string(name) +
      R"(","description":"x","parameters":{"type":"object","properties":{"x":{"type":"string","description":"x"}},)"
      R"("required":["x"]}}}]})",
    "the body", errc::bad_request);
  try {
    return render_chat(model, read_chat(field_reader(body.root()))).text.find(name) != std::string::npos;
  } catch (const failure&) {
    return false;
  }
}

/// What requests that say nothing are sampled with, as lines of a Modelfile.
std::string parameters_of(const served_model& model) {
  std::string lines;
  for (const auto& [name, value] : named_sampling(default_sampling(model.defaults, sampling_convention::local)))
    lines += (lines.empty() ? "" : "\n") + (name == "repetition_penalty" ? "repeat_penalty" : name) + ' ' + value;
  return lines;
}

/// The model's entry in a list, to which more is added.
json_object entry_of(const known_model& one, std::uint64_t size) {
  served_model alone; // what is known of one that is not loaded
  alone.id = one.name;
  alone.weights = one.files.format;
  const auto& model = one.model ? *one.model : alone;
  const auto name = to_utf8(listed_name(model));
  json_object entry;
  entry.text("name", name)
    .text("model", name)
    .number("size", size)
    .text("digest", digest_of(one))
    .raw("details", details_of(model));
  return entry;
}

/// "2025-11-29T12:00:00Z"
std::string date_of(std::chrono::system_clock::time_point at) {
  const auto seconds = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return to_date("%Y-%m-%dT%H:%M:%SZ", parts).value();
}

} // namespace

std::string ollama_tags(const std::vector<known_model>& models) {
  static const auto started = ollama_time();
  std::vector<std::string> entries;
  for (const auto& one : models)
    entries.push_back(entry_of(one, size_of(one)).text("modified_at", started).str());
  return json_object().list("models", entries).str();
}

std::string ollama_running(const std::vector<known_model>& models) {
  std::vector<std::string> entries;
  for (const auto& one : models) {
    if (!one.model)
      continue;
    const auto in_vram = one.model->device.starts_with("cpu") ? 0 : one.model->weight_bytes;
    entries.push_back(entry_of(one, one.model->weight_bytes)
                        .text("expires_at", one.until ? date_of(*one.until) : "9999-12-31T23:59:59Z") // never
                        .number("size_vram", in_vram)
                        .number("context_length", one.model->max_context)
                        .str());
  }
  return json_object().list("models", entries).str();
}

std::string ollama_show(const field_reader& body, const served_model& model) {
  ollama_model_name(body, model);
  const auto family = to_utf8(model.family);
  std::vector<std::string> capabilities;
  if (model.generates)
    capabilities.push_back(json_text("completion"));
  if (model.embeddings.how != pooling::none)
    capabilities.push_back(json_text("embedding"));
  if (shows_tools(model))
    capabilities.push_back(json_text("tools"));
  if (model.render && model.format.reasoning)
    capabilities.push_back(json_text("thinking"));
  return json_object()
    .text("modelfile", "")
    .text("parameters", parameters_of(model))
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

std::vector<std::string> ollama_pull(const field_reader& body, const served_model& model) {
  static_cast<void>(ollama_model_name(body, model));
  const auto status = [](std::string_view text) { return json_object().text("status", text).str(); };
  return {status("pulling manifest"), status("success")};
}

std::string ollama_version() { return json_object().text("version", modelled_version).str(); }

} // namespace troupe
