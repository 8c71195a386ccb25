#include "api/anthropic/message_tools.hpp"

#include "api/openai/fields/output_fields.hpp"
#include "api/openai/responses/item_fields.hpp"
#include "runtime/support/json/json_object.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace troupe {

namespace {

/// What types of tools begin with whose schema only Anthropic's models know, or which Anthropic runs.
constexpr auto typed_tools = std::to_array<std::string_view>({
  "advisor",
  "bash",
  "code_execution",
  "computer",
  "mcp_toolset",
  "memory",
  "text_editor",
  "tool_search_tool",
  "web_fetch",
  "web_search",
});

std::string function_tool(const field_reader& tool) {
  json_object function;
  function.text("name", needed_text(tool, "name"));
  if (const auto description = tool.find("description"))
    function.value("description", *description);
  const auto schema = tool.object("input_schema");
  if (!schema)
    tool.refuse("input_schema", "is required");
  function.value("parameters", schema->body());
  if (const auto strict = tool.find("strict"))
    function.value("strict", *strict);
  return json_object().text("type", "function").object("function", function).str();
}

void add_message_tools(const field_reader& body, json::array given, message_tools& to) {
  std::set<std::string> left_out;
  std::size_t number = 0;
  for (auto item : given) {
    const auto name = item_path("tools", number++);
    if (!item.is_object())
      body.refuse(name, "an object", item);
    const field_reader tool(item, body.path(name));
    const auto type = tool.text("type").value_or("custom");
    if (type == "custom") {
      to.paths.emplace_back(item_path("tools", to.tools.size()), tool.path());
      to.tools.push_back(function_tool(tool));
    } else if (std::ranges::any_of(typed_tools, [&](std::string_view known) { return type.starts_with(known); })) {
      left_out.emplace(type);
    } else {
      unsupported_value(tool.path("type"), "is \"" + std::string(type) + "\", which is no type of tools");
    }
  }
  std::string types;
  for (const auto& type : left_out)
    types += (types.empty() ? "" : ", ") + type;
  if (!types.empty())
    to.notes.push_back("tools that this server does not have: " + types);
}

} // namespace

message_tools read_message_tools(const field_reader& body) {
  message_tools result;
  if (const auto tools = body.list("tools", most_tools))
    add_message_tools(body, *tools, result);
  const auto choice = body.object("tool_choice");
  if (!choice)
    return result;
  const auto type = needed_text(*choice, "type");
  result.parallel = !choice->boolean("disable_parallel_tool_use").value_or(false);
  if (type == "auto" || type == "none")
    result.choice = json_text(type);
  else if (type == "any")
    result.choice = R"("required")";
  else if (type == "tool")
    result.choice = json_object()
                      .text("type", "function")
                      .object("function", json_object().text("name", needed_text(*choice, "name")))
                      .str();
  else
    choice->refuse("type", "must be \"auto\", \"any\", \"tool\" or \"none\", not \"" + std::string(type) + '"');
  return result;
}

} // namespace troupe
