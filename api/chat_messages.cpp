#include "api/chat_messages.hpp"

#include <boost/json.hpp>

namespace troupe {

namespace {

boost::json::value copied(json::value v) {
  using simdjson::dom::element_type;
  switch (v.type()) {
    case element_type::ARRAY: {
      boost::json::array result;
      for (auto item : json::array(v))
        result.push_back(copied(item));
      return result;
    }
    case element_type::OBJECT: {
      boost::json::object result;
      for (auto [key, item] : json::object(v))
        result[std::string_view(key)] = copied(item);
      return result;
    }
    case element_type::INT64: return std::int64_t(v);
    case element_type::UINT64: return std::uint64_t(v);
    case element_type::DOUBLE: return double(v);
    case element_type::BOOL: return bool(v);
    case element_type::STRING: return boost::json::string(std::string_view(v));
    default: return nullptr;
  }
}

/// Text parts in one string, a line each, as servers for templates that know only strings do it.
std::string joined_parts(const field_reader& message, json::array parts) {
  std::string result;
  std::size_t number = 0;
  for (auto item : parts) {
    const auto name = "content[" + std::to_string(number) + "]";
    std::string_view text;
    if (item.get(text)) {
      if (!item.is_object())
        message.refuse(name, "an object or a string", item);
      const field_reader part(item, message.name_of(name) + ".");
      const auto type = part.text("type").value_or("text");
      if (type != "text")
        throw failure(errc::unsupported,
                      "`" + part.name_of("type") + "` is \"" + std::string(type) + "\"; this model reads text only",
                      part.name_of("type"));
      const auto given = part.text("text");
      if (!given)
        part.refuse("text", "is required");
      text = *given;
    }
    if (number++ > 0)
      result += '\n';
    result += text;
  }
  return result;
}

/// OpenAI's clients send arguments as JSON in a string; templates expect what it says.
void open_arguments(const field_reader& call, boost::json::object& copy) {
  const auto function = call.object("function");
  if (!function)
    call.refuse("function", "is required");
  const auto name = function->text("name");
  if (!name)
    function->refuse("name", "is required");
  const auto arguments = function->find("arguments");
  std::string_view text;
  if (!arguments || arguments->get(text))
    return;
  auto& target = copy["function"].as_object()["arguments"];
  if (text.empty()) {
    target = boost::json::object();
    return;
  }
  simdjson::dom::parser parser;
  json::value parsed;
  if (parser.parse(text.data(), text.size()).get(parsed) || !parsed.is_object())
    function->refuse("arguments", "must be a JSON object, as a string or as such");
  target = copied(parsed);
}

boost::json::object read_message(json::value given, const std::string& path) {
  const field_reader message(given, path);
  const auto role = message.text("role");
  if (!role || role->empty())
    message.refuse("role", "is required");
  auto result = copied(given).as_object();
  const auto content = message.find("content");
  const auto calls = message.list("tool_calls");
  json::array parts;
  if (content && !content->get(parts))
    result["content"] = joined_parts(message, parts);
  else if (content && !content->is_string())
    message.refuse("content", "a string or a list of text parts", *content);
  else if (!content && !calls && *role != "assistant")
    message.refuse("content", "is required");
  if (!calls)
    return result;
  std::size_t number = 0;
  for (auto call : *calls) {
    const auto name = "tool_calls[" + std::to_string(number) + "]";
    if (!call.is_object())
      message.refuse(name, "an object", call);
    auto& copy = result["tool_calls"].as_array()[number++].as_object();
    open_arguments(field_reader(call, message.name_of(name) + "."), copy);
  }
  return result;
}

boost::json::array read_tools(const field_reader& body) {
  boost::json::array result;
  const auto tools = body.list("tools");
  if (!tools)
    return result;
  for (auto item : *tools) {
    const auto name = "tools[" + std::to_string(result.size()) + "]";
    if (!item.is_object())
      body.refuse(name, "an object", item);
    const field_reader tool(item, name + ".");
    const auto function = tool.object("function");
    if (!function)
      tool.refuse("function", "is required");
    if (!function->text("name"))
      function->refuse("name", "is required");
    result.push_back(copied(item));
  }
  return result;
}

/// Whether the template is to know the tools. Forcing a call would need guided generation.
bool tools_are_offered(const field_reader& body) {
  const auto choice = body.find("tool_choice");
  if (!choice)
    return true;
  std::string_view word;
  if (choice->get(word) || word == "required")
    throw failure(errc::unsupported, "`tool_choice` must be \"auto\" or \"none\": forcing a tool call is not supported",
                  "tool_choice");
  if (word != "auto" && word != "none")
    body.refuse("tool_choice", "must be \"auto\" or \"none\"");
  return word == "auto";
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const auto first = text.find_first_not_of(space);
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(space) - first + 1);
}

} // namespace

chat_input read_chat(const field_reader& body) {
  chat_input result;
  const auto messages = body.list("messages");
  if (!messages)
    body.refuse("messages", "is required");
  for (auto item : *messages) {
    const auto name = "messages[" + std::to_string(result.messages.size()) + "]";
    if (!item.is_object())
      body.refuse(name, "an object", item);
    result.messages.push_back(read_message(item, name + "."));
  }
  if (result.messages.empty())
    body.refuse("messages", "must have at least one message");

  result.tools = read_tools(body);
  if (!tools_are_offered(body))
    result.tools.clear();
  if (const auto variables = body.object("chat_template_kwargs"))
    result.variables = copied(variables->body()).as_object();
  for (const auto* name : {"documents", "reasoning_effort"})
    if (const auto given = body.find(name))
      result.variables[name] = copied(*given);

  result.continue_final_message = body.boolean("continue_final_message").value_or(false);
  result.add_generation_prompt = body.boolean("add_generation_prompt").value_or(!result.continue_final_message);
  if (result.continue_final_message && result.add_generation_prompt)
    body.refuse("continue_final_message", "and `add_generation_prompt` cannot both be true");
  if (result.continue_final_message && !result.messages.back().as_object()["content"].is_string())
    body.refuse("continue_final_message", "needs a last message with text");
  return result;
}

std::string render_chat(const served_model& model, const chat_input& chat) {
  if (!model.render)
    throw failure(errc::bad_request, "this model has no chat template: use /v1/completions", "messages");
  auto prompt = model.render(chat);
  if (!chat.continue_final_message)
    return prompt;
  const auto& last = chat.messages.back().as_object().at("content").as_string();
  const auto text = trimmed(std::string_view(last.data(), last.size()));
  const auto found = prompt.rfind(text);
  if (found == prompt.npos)
    throw failure(errc::bad_request, "`continue_final_message`: the chat template changes the last message's text",
                  "continue_final_message");
  return prompt.substr(0, found + text.size());
}

} // namespace troupe
