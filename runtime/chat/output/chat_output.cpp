#include "runtime/chat/output/chat_output.hpp"

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/local_reference.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/technique_uses.hpp"

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

void chat_output::note_prompt(std::string_view prompt, bool continues_reasoning, bool continues_content) {
  auto& reasoning = format.reasoning;
  opens_reasoning = reasoning && (continues_reasoning || reasoning->is_opened_by(prompt));
  if (reasoning && !opens_reasoning && (continues_content || reasoning->is_closed_by(prompt)))
    reasoning = nullptr;
}

void chat_output::constrain(technique_uses& uses) const {
  if (const auto* how = constraints())
    return uses.set(how->of_output(*this, uses.constraint()));
  const bool is_forced = reads_calls() && choice != call_choice::automatic;
  if (is_forced || bounds_reasoning)
    throw failure(errc::unsupported, "this build of Troupe cannot force calls or bound reasoning",
                  is_forced ? "tool_choice" : "thinking_token_budget");
}

} // namespace troupe
