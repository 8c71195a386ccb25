#include "runtime/chat/output/chat_output.hpp"

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/local_reference.hpp"
#include "runtime/support/json.hpp"

#include <algorithm>

namespace troupe {

namespace {

bool is_string_schema(json::value schema) {
  if (!schema.is_object())
    return false;
  const auto names_string = [](json::value type) {
    std::string_view text;
    return !type.get(text) && text == "string";
  };
  if (const auto type = json::find(schema, "type")) {
    json::array several;
    if (type->get(several))
      return names_string(*type);
    return std::ranges::any_of(several, names_string);
  }
  json::array values;
  if (const auto given = json::find(schema, "enum"); given && !given->get(values))
    return values.size() > 0 && std::ranges::all_of(values, [](json::value v) { return v.is_string(); });
  return false;
}

} // namespace

offered_tool::offered_tool(std::string name, std::string parameters, bool strict)
  : name(std::move(name)), parameters(std::move(parameters)), strict(strict) {
  if (this->parameters.empty())
    return;
  const auto document = json::document::parse(this->parameters, "the schema", errc::bad_request);
  const auto properties = json::find(resolved_schema(document.root(), document.root()), "properties");
  if (properties && properties->is_object())
    for (const auto [key, schema] : json::object(*properties))
      if (is_string_schema(resolved_schema(document.root(), schema)))
        strings_.emplace_back(key);
}

bool offered_tool::is_string(std::string_view parameter) const {
  return std::ranges::find(strings_, parameter) != strings_.end();
}

const offered_tool* chat_output::find(std::string_view name) const {
  const auto found = std::ranges::find(tools, name, &offered_tool::name);
  return found == tools.end() ? nullptr : &*found;
}

bool chat_output::reads_calls() const { return !tools.empty() && format.calls && choice != call_choice::none; }

bool chat_output::is_needed() const {
  return format.reasoning || reads_calls() || (format.calls && format.calls->channels());
}

} // namespace troupe
