#include "api/openai/responses/response_tools.hpp"

#include "runtime/support/json/json_digits.hpp"

#include "api/openai/responses/item_fields.hpp"
#include "runtime/support/json/json_object.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace troupe {

namespace {

/// What tools' types begin with that are not functions: OpenAI runs them, or they have no schema.
constexpr auto foreign_types = std::to_array<std::string_view>({
  "apply_patch",
  "code_interpreter",
  "computer",
  "custom",
  "file_search",
  "image_generation",
  "local_shell",
  "mcp",
  "programmatic_tool_calling",
  "shell",
  "tool_search",
  "web_search",
});

bool is_foreign(std::string_view type) {
  return std::ranges::any_of(foreign_types, [&](std::string_view known) { return type.starts_with(known); });
}

class tool_list {
public:
  explicit tool_list(response_tools& to) : to_(to) {}

  /// Returns what the response object repeats of the list.
  std::string read(const field_reader& of, json::array tools, std::string_view space) {
    std::vector<std::string> repeated;
    std::size_t number = 0;
    for (auto given : tools) {
      const auto name = item_path("tools", number++);
      if (!given.is_object())
        of.refuse(name, "an object", given);
      const field_reader tool(given, of.path(name));
      const auto type = needed_text(tool, "type");
      if (type == "function")
        repeated.push_back(add_function(tool, space));
      else if (type == "namespace" && space.empty())
        repeated.push_back(add_namespace(tool));
      else if (is_foreign(type))
        left_out_.insert(std::string(type));
      else
        unsupported_value(tool.path("type"), "is \"" + std::string(type) + "\", which is no type of tools");
    }
    return json_list(repeated);
  }

  void finish() {
    to_.tools = json_list(functions_);
    std::string types;
    for (const auto& type : left_out_)
      types += (types.empty() ? "" : ", ") + type;
    if (!types.empty())
      to_.notes.push_back("tools that this server does not have: " + types);
  }

private:
  std::string add_function(const field_reader& tool, std::string_view space) {
    const auto name = needed_text(tool, "name");
    json_object function;
    function.text("name", space.empty() ? std::string(name) : to_.namespaces.add(space, name));
    for (const auto* key : {"description", "parameters", "strict"})
      if (const auto value = tool.find(key))
        function.value(key, *value);
    to_.paths.emplace_back(item_path("tools", functions_.size()), tool.path());
    functions_.push_back(json_object().text("type", "function").raw("function", function.str()).str());
    return json_object()
      .text("type", "function")
      .text("name", name)
      .raw("description", given_or(tool, "description", "null"))
      .raw("parameters", given_or(tool, "parameters", "null"))
      .raw("strict", given_or(tool, "strict", "false"))
      .str();
  }

  std::string add_namespace(const field_reader& tool) {
    const auto name = needed_text(tool, "name");
    if (name.empty())
      tool.refuse("name", "must not be empty");
    const auto tools = tool.list("tools");
    if (!tools)
      tool.refuse("tools", "is required");
    return json_object()
      .text("type", "namespace")
      .text("name", name)
      .raw("description", given_or(tool, "description", "\"\""))
      .null("parameters") // which Open Responses' file wants of every tool
      .null("strict")
      .raw("tools", read(tool, *tools, name))
      .str();
  }

  response_tools& to_;
  std::vector<std::string> functions_; // of the chat: JSON
  std::set<std::string> left_out_;     // types
};

std::string function_choice(const std::string& shown) {
  return json_object().text("type", "function").raw("function", json_object().text("name", shown).str()).str();
}

void read_allowed(const field_reader& choice, response_tools& to) {
  const auto mode = choice.text("mode").value_or("auto");
  const auto tools = choice.list("tools");
  if (!tools)
    choice.refuse("tools", "is required");
  std::vector<std::string> allowed;
  std::size_t number = 0;
  for (auto given : *tools) {
    const auto name = item_path("tools", number++);
    if (!given.is_object())
      choice.refuse(name, "an object", given);
    const field_reader tool(given, choice.path(name));
    const auto type = needed_text(tool, "type");
    if (type == "function")
      allowed.push_back(function_choice(shown_function(tool)));
    else if (!is_foreign(type)) // those have been left out
      unsupported_value(tool.path("type"), "is \"" + std::string(type) + "\", which is no type of tools");
  }
  to.choice = json_object()
                .text("type", "allowed_tools")
                .raw("allowed_tools", json_object().text("mode", mode).raw("tools", json_list(allowed)).str())
                .str();
  to.repeated_choice =
    json_object().text("type", "allowed_tools").text("mode", mode).value("tools", *choice.find("tools")).str();
}

void read_choice(const field_reader& body, response_tools& to) {
  const auto choice = body.find("tool_choice");
  if (!choice)
    return;
  to.repeated_choice = json::minified(*choice);
  if (!choice->is_object()) {
    to.choice = to.repeated_choice;
    return;
  }
  const auto named = *body.object("tool_choice");
  const auto type = needed_text(named, "type");
  if (type == "function")
    to.choice = function_choice(shown_function(named));
  else if (type == "allowed_tools")
    read_allowed(named, to);
  else
    unsupported_value("tool_choice.type", "is \"" + std::string(type) + "\", a tool that this server does not have");
}

} // namespace

std::string tool_namespaces::shown_name(std::string_view space, std::string_view name) {
  return std::string(space) + (space.ends_with("__") ? "" : "__") + std::string(name);
}

std::string tool_namespaces::add(std::string_view space, std::string_view name) {
  auto shown = shown_name(space, name);
  functions_.try_emplace(shown, function{std::string(space), std::string(name)});
  return shown;
}

const tool_namespaces::function* tool_namespaces::find(const std::string& shown) const {
  const auto found = functions_.find(shown);
  return found == functions_.end() ? nullptr : &found->second;
}

std::string shown_function(const field_reader& of) {
  const auto name = needed_text(of, "name");
  const auto space = of.text("namespace");
  return space && !space->empty() ? tool_namespaces::shown_name(*space, name) : std::string(name);
}

response_tools read_response_tools(const field_reader& body) {
  response_tools result;
  if (const auto tools = body.list("tools")) {
    tool_list list(result);
    result.repeated_tools = list.read(body, *tools, {});
    list.finish();
  }
  read_choice(body, result);
  return result;
}

} // namespace troupe
