#include "runtime/chat/output/chat_output.hpp"

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/local_reference.hpp"
#include "runtime/support/json/json.hpp"

#include <algorithm>

namespace troupe {

offered_tool::offered_tool(std::string name, std::string parameters, bool strict)
  : name(std::move(name)), parameters(std::move(parameters)), strict(strict) {
  if (this->parameters.empty())
    return;
  const auto document = json::document::parse(this->parameters, "the schema", errc::bad_request);
  int left = 2000; // choices that refer to choices are soon too many
  const auto properties = json::find(resolved_schema(document.root(), document.root()), "properties");
  if (properties && properties->is_object())
    for (const auto [key, schema] : json::object(*properties))
      if (const auto kind = kind_of_schema(document.root(), schema, left); kind.known)
        kinds_.emplace_back(key, kind);
}

parameter_kind offered_tool::kind_of(std::string_view parameter) const {
  const auto found = std::ranges::find(kinds_, parameter, [](const auto& each) { return each.first; });
  return found == kinds_.end() ? parameter_kind{} : found->second;
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
