#include "api/openai/fields/output_fields.hpp"

#include "runtime/chat/chat_template.hpp"
#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/json/json_digits.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

namespace {

std::string_view required_text(const field_reader& of, std::string_view key) {
  const auto found = of.text(key);
  if (!found)
    of.refuse(key, "is required");
  return *found;
}

field_reader required_object(const field_reader& of, std::string_view key) {
  auto found = of.object(key);
  if (!found)
    of.refuse(key, "is required");
  return *std::move(found);
}

offered_tool read_offered(const field_reader& tool, std::size_t position) {
  const auto function = required_object(tool, "function");
  const auto name = required_text(function, "name");
  if (!is_tool_name(name))
    function.refuse("name", "must have 1 to " + std::to_string(most_tool_name_bytes) + " letters, digits and _-.:/");
  const auto parameters = function.object("parameters");
  // Of a tool without them OpenAI's reference says that it takes none.
  offered_tool result(std::string(name),
                      parameters ? json::minified(parameters->body()) : R"({"type":"object","properties":{}})",
                      function.boolean("strict").value_or(false));
  result.position = position;
  return result;
}

std::vector<offered_tool> read_tools(const field_reader& body) {
  std::vector<offered_tool> result;
  const auto tools = body.list("tools", most_tools);
  if (!tools)
    return result;
  std::vector<std::string_view> names;
  for (auto item : *tools) {
    const auto key = "tools[" + std::to_string(result.size()) + ']';
    if (!item.is_object())
      body.refuse(key, "an object", item);
    result.push_back(read_offered(field_reader(item, body.path(key)), result.size()));
  }
  for (const auto& tool : result)
    names.push_back(tool.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    body.refuse("tools", "has two functions named `" + std::string(*twice) + '`');
  return result;
}

const offered_tool& chosen_tool(const field_reader& body, const field_reader& choice, const chat_output& from) {
  check_function_type(choice);
  const auto name = required_text(required_object(choice, "function"), "name");
  const auto* tool = from.find(name);
  if (!tool)
    body.refuse("tool_choice", "names `" + std::string(name) + "`, which is none of the `tools`");
  return *tool;
}

/// Leaves only the tools that are allowed; the template sees them all, so that prompts keep their common beginning.
void read_allowed(const field_reader& body, const field_reader& allowed, chat_output& to) {
  const auto mode = required_text(allowed, "mode");
  if (mode != "auto" && mode != "required")
    allowed.refuse("mode", "must be \"auto\" or \"required\", not \"" + std::string(mode) + '"');
  const auto tools = allowed.list("tools", most_tools);
  if (!tools || tools->size() == 0)
    allowed.refuse("tools", "must name at least one of the `tools`");
  std::vector<std::size_t> positions;
  for (auto item : *tools) {
    const auto name = "tools[" + std::to_string(positions.size()) + ']';
    if (!item.is_object())
      allowed.refuse(name, "an object", item);
    positions.push_back(chosen_tool(body, field_reader(item, allowed.path(name)), to).position);
  }
  std::erase_if(
    to.tools, [&](const offered_tool& tool) { return std::ranges::find(positions, tool.position) == positions.end(); });
  to.choice = mode == "auto" ? call_choice::automatic : call_choice::required;
}

/// Reads `tool_choice`; leaves only a named tool, or those allowed.
void read_choice(const field_reader& body, chat_output& to) {
  constexpr auto wanted = "must be \"none\", \"auto\", \"required\", a function as {\"type\": \"function\", "
                          "\"function\": {\"name\": ...}}, or {\"type\": \"allowed_tools\", ...}";
  const auto found = body.find("tool_choice");
  if (!found)
    return;
  std::string_view word;
  if (!found->get(word)) {
    if (word == "none")
      to.choice = call_choice::none;
    else if (word == "required")
      to.choice = call_choice::required;
    else if (word != "auto")
      body.refuse("tool_choice", wanted);
  } else {
    if (!found->is_object())
      body.refuse("tool_choice", wanted);
    const auto choice = field_reader(*found, body.path("tool_choice"));
    if (choice.text("type") == "allowed_tools")
      return read_allowed(body, required_object(choice, "allowed_tools"), to);
    auto tool = chosen_tool(body, choice, to);
    to.choice = call_choice::named;
    to.tools = {std::move(tool)};
  }
  if (to.tools.empty() && to.choice != call_choice::none && word != "auto")
    body.refuse("tool_choice", "needs `tools`");
}

/// What the words mean for templates that do not know them. Beyond these, reasoning is not bounded.
struct effort_budget {
  std::string_view word;
  int tokens;
};
constexpr auto efforts = std::to_array<effort_budget>({{"minimal", 512}, {"low", 1024}, {"medium", 8192}});

} // namespace

void check_function_type(const field_reader& of) {
  const auto type = of.text("type").value_or("function");
  if (type != "function")
    throw failure(errc::unsupported,
                  "`" + of.path("type") + "` is \"" + std::string(type) + "\"; only \"function\" is supported",
                  of.path("type"));
}

bool is_tool_name(std::string_view name) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/";
  return !name.empty() && name.size() <= most_tool_name_bytes && name.find_first_not_of(letters) == name.npos;
}

chat_output read_output(const field_reader& body, const served_model& model) {
  chat_output result;
  result.format = model.format;
  result.tools = read_tools(body);
  read_choice(body, result);
  result.parallel = body.boolean("parallel_tool_calls").value_or(true);
  result.with_reasoning = body.boolean("include_reasoning").value_or(true);
  const bool forced = result.choice == call_choice::required || result.choice == call_choice::named;
  if (forced && !result.format.calls)
    refuse_field("tool_choice", "cannot force a call: this server does not parse calls", errc::unsupported);
  return result;
}

int read_thinking_budget(const field_reader& body, const jinja::dict& variables, const served_model& model) {
  constexpr auto name = "thinking_token_budget";
  if (const auto given = body.integer(name, -1, sampling_fields::most_int))
    return static_cast<int>(*given);
  if (const auto thinking = body.object("thinking")) // Anthropic's
    if (const auto given = thinking->integer("budget_tokens", 1, sampling_fields::most_int);
        given && thinking->text("type") == "enabled")
      return static_cast<int>(*given);
  if (const auto* given = variables.find("thinking_budget"); given && given->is_integral()) // Seed-OSS's
    return static_cast<int>(std::clamp<std::int64_t>(given->integer(), -1, sampling_fields::most_int));
  const std::string_view text = model.chat ? std::string_view(model.chat->text()) : std::string_view();
  const auto shows = [&](std::string_view variable) { return text.find(variable) != text.npos; };
  const auto is_off = [&](std::string_view variable) {
    const auto* value = variables.find(variable);
    return value && value->is(jinja::kind::boolean) && !value->truth();
  };
  if ((is_off("enable_thinking") || is_off("thinking")) && !shows("enable_thinking") && !shows("thinking"))
    return 0;
  const auto effort = body.find("reasoning_effort");
  std::string_view word;
  if (!effort || effort->get(word) || shows("reasoning_effort"))
    return -1;
  for (const auto& [known, tokens] : efforts)
    if (word == known)
      return tokens;
  return -1;
}

namespace {

/// How it may end early. Behind channels' reasoning, what follows is the content, unless there may be calls.
std::shared_ptr<const reasoning_marks> reasoning_of(const chat_output& what, const served_model& model) {
  reasoning_marks marks;
  std::string close;
  if (const auto* known = what.format.reasoning) {
    marks.begin = known->begin();
    marks.end = close = known->end();
  } else if (const auto* channels = what.format.calls ? what.format.calls->channels() : nullptr) {
    marks.begin = channels->reasoning_begin;
    marks.end = close = channels->reasoning_end;
    if (!what.reads_calls())
      close += channels->content_begin;
  }
  if (close.empty() || !model.encode)
    return nullptr;
  marks.is_open = what.opens_reasoning;
  marks.closing = model.encode(close, false);
  return std::make_shared<const reasoning_marks>(std::move(marks));
}

} // namespace

std::shared_ptr<const chat_output> follow_output(chat_output what, std::string_view prompt, const chat_input& chat,
                                                 const served_model& model, generation& to) {
  what.note_prompt(prompt, chat.continues_reasoning, chat.continue_final_message);
  if (!what.is_needed())
    return nullptr;
  const bool marks = what.format.reasoning || (what.format.calls && what.format.calls->channels());
  what.bounds_reasoning = to.sampling.thinking_budget >= 0 && marks && !to.sampling.scores_only();
  what.constrain(to.sampling.techniques);
  to.shown_tokens = model.markers;
  to.reasoning = reasoning_of(what, model);
  return std::make_shared<const chat_output>(std::move(what));
}

} // namespace troupe
