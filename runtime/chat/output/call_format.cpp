#include "runtime/chat/output/call_format.hpp"

#include "runtime/chat/output/formats/formats.hpp"
#include "runtime/chat/output/formats/tag_formats.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

/// The schema, which is of an object even where it does not say so.
std::string object_schema(const std::string& parameters) {
  if (parameters.empty())
    return R"({"type":"object"})";
  const auto document = json::document::parse(parameters, "the schema", errc::bad_request);
  const auto root = document.root();
  auto text = json::minified(root);
  const bool is_typed = std::ranges::any_of(
    std::array{"type", "$ref", "allOf", "anyOf", "oneOf"},
    [&](const char* key) { return !root.is_object() || json::find(root, key).has_value(); });
  return is_typed ? text : text.insert(1, text == "{}" ? R"("type":"object")" : R"("type":"object",)");
}

} // namespace

std::string call_format::call_id(std::string_view entropy, std::string_view, std::size_t index) const {
  return "call_" + std::string(entropy.substr(0, 21)) + std::to_string(1000 + index).substr(1);
}

std::string json_arguments(const offered_tool& tool) {
  return tag_formats::closed_json(object_schema(tool.parameters));
}

std::span<const call_format* const> call_formats() {
  // Formats that others' marks would be taken for come first.
  static const auto all = std::to_array<const call_format*>({
    &harmony_calls(),
    &deepseek_v3_calls(),
    &deepseek_v31_calls(),
    &kimi_k2_calls(),
    &mistral_args_calls(),
    &mistral_calls(),
    &seed_oss_calls(),
    &minimax_calls(),
    &lfm2_calls(),
    &gemma4_calls(),
    &nemotron_calls(),
    &glm45_calls(),
    &qwen3_coder_calls(),
    &phi4_calls(),
    &granite_calls(),
    &hermes_calls(),
    &llama3_json_calls(),
    &json_calls(),
  });
  return all;
}

const call_format* find_call_format(std::string_view name) {
  const auto all = call_formats();
  const auto found = std::ranges::find(all, name, &call_format::name);
  return found == all.end() ? nullptr : *found;
}

} // namespace troupe
