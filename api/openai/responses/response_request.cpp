#include "api/openai/responses/response_request.hpp"

#include "api/openai/chat_messages.hpp"
#include "api/openai/json_object.hpp"
#include "api/openai/object_id.hpp"
#include "api/openai/responses/conversation.hpp"
#include "api/openai/translated_request.hpp"
#include "runtime/sampling/sampling_ranges.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace troupe {

namespace {

constexpr auto names = std::to_array<field_name>({
  {"max_completion_tokens", "max_output_tokens"},
  {"response_format.json_schema", "text.format"},
  {"response_format", "text.format"},
  {"reasoning_effort", "reasoning.effort"},
  {"messages", "input"},
  {"].function.", "]."}, // of tools
  {"tool_choice.function", "tool_choice"},
});

/// Members that are translated, checked here, or have no influence.
constexpr auto own_fields = std::to_array<std::string_view>({
  "input",
  "instructions",
  "previous_response_id",
  "store",
  "stream",
  "stream_options",
  "text",
  "tools",
  "tool_choice",
  "max_output_tokens",
  "reasoning",
  "truncation",
  "metadata",
  "user",
  "safety_identifier",
  "prompt_cache_key",
  "service_tier",
  "include",
  "top_logprobs",
  "background",
  "conversation",
  "prompt",
  "max_tool_calls",
  "prompt_cache_retention",
});

/// Members of chats that would change what an answer is.
constexpr auto foreign_fields = std::to_array<std::string_view>({
  "messages",
  "n",
  "best_of",
  "num_beams",
  "use_beam_search",
  "prompt_logprobs",
  "logprobs",
  "max_tokens",
  "echo",
  "max_completion_tokens",
  "response_format",
  "functions",
  "return_token_ids",
  "continue_final_message",
});

[[noreturn]] void unsupported_value(const std::string& path, const std::string& why) {
  throw failure(errc::unsupported, "`" + path + "` " + why, path);
}

std::string item_path(std::string_view list, std::size_t number) {
  return std::string(list) + '[' + std::to_string(number) + ']';
}

std::string_view needed_text(const field_reader& of, std::string_view key) {
  const auto text = of.text(key);
  if (!text)
    of.refuse(key, "is required");
  return *text;
}

// -- input items --------------------------------------------------------------------------------------------------------

std::string part_text(const field_reader& part) {
  const auto type = part.text("type").value_or("text");
  if (type == "refusal")
    return std::string(needed_text(part, "refusal"));
  if (type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text" &&
      type != "summary_text")
    unsupported_value(part.path("type"), "is \"" + std::string(type) + "\"; this model reads text only");
  return std::string(needed_text(part, "text"));
}

std::vector<std::string> texts_of(const field_reader& of, std::string_view key, json::array parts) {
  std::vector<std::string> result;
  for (auto item : parts) {
    const auto name = item_path(key, result.size());
    if (!item.is_object())
      of.refuse(name, "an object", item);
    result.push_back(part_text(field_reader(item, of.path(name))));
  }
  return result;
}

/// A text or a list of parts, as a chat's content: JSON.
std::string content_of(const field_reader& item, std::string_view key) {
  const auto found = item.find(key);
  if (!found)
    item.refuse(key, "is required");
  std::string_view text;
  json::array parts;
  if (!found->get(text))
    return json_text(needed_text(item, key)); // checked for valid Unicode
  if (found->get(parts))
    item.refuse(key, "a string or a list of text parts", *found);
  std::vector<std::string> result;
  for (const auto& part : texts_of(item, key, parts))
    result.push_back(json_object().text("type", "text").text("text", part).str());
  return json_list(result);
}

void add_item(const field_reader& item, conversation& to) {
  const auto type = item.text("type").value_or("message");
  if (type == "message") {
    auto role = needed_text(item, "role");
    if (role == "developer")
      role = "system"; // the name that templates know
    if (role != "user" && role != "assistant" && role != "system")
      item.refuse("role",
                  "must be \"user\", \"assistant\", \"system\" or \"developer\", not \"" + std::string(role) + '"');
    to.add_message(role, content_of(item, "content"));
  } else if (type == "function_call") {
    const auto arguments = needed_text(item, "arguments");
    open_arguments(item, *item.find("arguments")); // checks them under the client's name for them
    to.add_call(needed_text(item, "call_id"), needed_text(item, "name"), arguments);
  } else if (type == "function_call_output") {
    to.add_call_output(needed_text(item, "call_id"), content_of(item, "output"));
  } else if (type == "reasoning") {
    for (const auto* key : {"summary", "content"})
      if (const auto parts = item.list(key))
        for (const auto& text : texts_of(item, key, *parts))
          to.add_reasoning(text);
  } else {
    unsupported_value(item.path("type"), "is \"" + std::string(type) + "\", which is not supported");
  }
}

/// The item as it is listed: with a type and an id.
std::string listed_item(const field_reader& item) {
  json_object result;
  if (!item.has("type"))
    result.text("type", "message");
  if (!item.has("id"))
    result.text("id", object_id(item.text("type").value_or("message") == "message" ? "msg_" : "item_"));
  for (auto [key, value] : json::object(item.body()))
    if (!value.is_null() || (key != "id" && key != "type"))
      result.value(key, value);
  return result.str();
}

/// Returns the list of items.
std::string read_input(const field_reader& body, conversation& to) {
  const auto found = body.find("input");
  if (!found)
    body.refuse("input", "is required");
  std::string_view text;
  if (!found->get(text)) {
    text = needed_text(body, "input");
    to.add_message("user", json_text(text));
    const auto part = json_object().text("type", "input_text").text("text", text).str();
    return json_list(std::array{json_object()
                                  .text("type", "message")
                                  .text("id", object_id("msg_"))
                                  .text("role", "user")
                                  .raw("content", '[' + part + ']')
                                  .str()});
  }
  json::array items;
  if (found->get(items))
    body.refuse("input", "a string or a list of items", *found);
  check_entries(body, "input", items.size(), most_input_items);
  std::vector<std::string> listed;
  for (auto given : items) {
    const auto name = item_path("input", listed.size());
    if (!given.is_object())
      body.refuse(name, "an object", given);
    const field_reader item(given, name);
    add_item(item, to);
    listed.push_back(listed_item(item));
  }
  return json_list(listed);
}

// -- the other fields ---------------------------------------------------------------------------------------------------

void refuse_what_is_not_supported(const field_reader& body) {
  for (const auto name : foreign_fields)
    if (body.has(name))
      unsupported_value(std::string(name), "is not a field of responses");
  if (body.boolean("background").value_or(false))
    unsupported_value("background", "is not supported: answers come at once or as a stream");
  for (const auto* name : {"conversation", "prompt", "max_tool_calls"})
    if (body.has(name))
      unsupported_value(name, "is not supported");
  if (const auto truncation = body.text("truncation"); truncation && *truncation != "disabled")
    unsupported_value("truncation", "must be \"disabled\": input that does not fit into the context is refused");
  if (const auto list = body.list("include", 64))
    for (auto item : *list) {
      std::string_view what;
      if (item.get(what))
        body.refuse("include", "a list of strings", item);
      // Reasoning is told in the clear, so that there is nothing to encrypt.
      if (what != "message.output_text.logprobs" && what != "reasoning.encrypted_content")
        unsupported_value("include", "names `" + std::string(what) + "`, which is not supported");
    }
}

bool includes_logprobs(const field_reader& body) {
  const auto list = body.list("include", 64);
  return list && std::ranges::any_of(*list, [](json::value item) {
           std::string_view what;
           return !item.get(what) && what == "message.output_text.logprobs";
         });
}

/// At most 16 texts, by name.
std::string metadata_of(const field_reader& body) {
  const auto given = body.object("metadata");
  if (!given)
    return "{}";
  const auto members = json::object(given->body());
  check_entries(body, "metadata", members.size(), 16);
  for (auto [key, value] : members) {
    std::string_view text;
    if (value.get(text) || text.size() > 4 * 512 || key.size() > 4 * 64)
      body.refuse("metadata", "must map names of at most 64 characters to texts of at most 512");
  }
  return simdjson::minify(given->body());
}

void add_format(json_object& to, const field_reader& body) {
  const auto text = body.object("text");
  if (!text)
    return;
  if (const auto verbosity = text->text("verbosity"); verbosity && *verbosity != "medium")
    unsupported_value("text.verbosity", "other than \"medium\" is not supported");
  const auto format = text->object("format");
  if (!format)
    return;
  const auto type = needed_text(*format, "type");
  if (type != "json_schema")
    return void(to.value("response_format", format->body()));
  json_object schema;
  for (auto [key, value] : json::object(format->body()))
    if (key != "type")
      schema.value(key, value);
  to.raw("response_format", json_object().text("type", type).raw("json_schema", schema.str()).str());
}

/// Tools are flat here, and the members of `function` in chats.
void add_tools(json_object& to, const field_reader& body) {
  if (const auto tools = body.list("tools")) {
    std::vector<std::string> result;
    for (auto given : *tools) {
      const auto name = item_path("tools", result.size());
      if (!given.is_object())
        body.refuse(name, "an object", given);
      const field_reader tool(given, name);
      if (const auto type = needed_text(tool, "type"); type != "function")
        unsupported_value(tool.path("type"), "is \"" + std::string(type) + "\"; tools are functions here");
      json_object function;
      for (auto [key, value] : json::object(given))
        if (key != "type")
          function.value(key, value);
      result.push_back(json_object().text("type", "function").raw("function", function.str()).str());
    }
    to.raw("tools", json_list(result));
  }
  const auto choice = body.find("tool_choice");
  if (!choice)
    return;
  if (!choice->is_object())
    return void(to.value("tool_choice", *choice));
  const auto named = *body.object("tool_choice");
  if (const auto type = needed_text(named, "type"); type != "function")
    unsupported_value("tool_choice.type", "is \"" + std::string(type) + "\", which is not supported");
  to.raw("tool_choice",
         json_object()
           .text("type", "function")
           .raw("function", json_object().text("name", needed_text(named, "name")).str())
           .str());
}

/// Returns what the response repeats of it.
std::string add_reasoning(json_object& to, const field_reader& body) {
  const auto given = body.object("reasoning");
  const auto effort = given ? given->text("effort") : std::nullopt;
  if (effort)
    to.text("reasoning_effort", *effort);
  for (const auto* key : {"summary", "generate_summary"})
    if (const auto summary = given ? given->text(key) : std::nullopt; summary && *summary != "auto")
      unsupported_value(given->path(key), "other than \"auto\" is not supported: reasoning is told whole");
  return json_object().raw("effort", effort ? json_text(*effort) : "null").raw("summary", "null").str();
}

std::string shortest(float value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

std::string given_or(const field_reader& body, std::string_view key, std::string fallback) {
  const auto found = body.find(key);
  return found ? simdjson::minify(*found) : std::move(fallback);
}

/// What the response object repeats of the request.
std::string repeated_members(const field_reader& body, const response_request& request, const std::string& metadata,
                             const std::string& reasoning) {
  const auto& sampling = request.asked.prompts.front().sampling;
  const auto members = json_object()
                         .flag("background", false)
                         .raw("instructions", given_or(body, "instructions", "null"))
                         .raw("max_output_tokens", given_or(body, "max_output_tokens", "null"))
                         .raw("metadata", metadata)
                         .raw("parallel_tool_calls", given_or(body, "parallel_tool_calls", "true"))
                         .raw("previous_response_id", given_or(body, "previous_response_id", "null"))
                         .raw("reasoning", reasoning)
                         .text("service_tier", "default")
                         .flag("store", request.store)
                         .raw("temperature", given_or(body, "temperature", shortest(sampling.temperature)))
                         .raw("text", given_or(body, "text", R"({"format":{"type":"text"}})"))
                         .raw("tool_choice", given_or(body, "tool_choice", "\"auto\""))
                         .raw("tools", given_or(body, "tools", "[]"))
                         .number("top_logprobs", std::max(sampling.logprobs, 0))
                         .raw("top_p", given_or(body, "top_p", shortest(sampling.top_p)))
                         .text("truncation", "disabled")
                         .raw("user", given_or(body, "user", "null"))
                         .str();
  return members.substr(1, members.size() - 2);
}

} // namespace

response_request parse_response_request(const field_reader& body, const served_model& model, response_store& stored,
                                        std::size_t owner, const std::stop_token& stop) {
  check_model_name(body, model);
  refuse_what_is_not_supported(body);
  response_request result;
  result.store = body.boolean("store").value_or(true);
  std::string earlier;
  if (const auto id = body.text("previous_response_id")) {
    const auto found = stored.find(owner, std::string(*id));
    if (!found)
      throw failure(errc::not_found, "there is no response `" + std::string(*id) + "`, or not any more",
                    "previous_response_id");
    earlier = found->messages;
  }
  conversation chat(std::move(earlier));
  result.input = read_input(body, chat);
  result.messages = chat.messages();

  json_object to;
  std::string messages;
  if (const auto instructions = body.text("instructions"); instructions && !instructions->empty())
    messages = json_object().text("role", "system").text("content", *instructions).str();
  if (!messages.empty() && !result.messages.empty())
    messages += ',';
  to.raw("messages", '[' + messages + result.messages + ']');
  if (const auto limit = body.integer("max_output_tokens", 1, sampling_fields::most_int))
    to.number("max_completion_tokens", *limit);
  const auto top = body.integer("top_logprobs", 0, sampling_fields::most_logprobs);
  if (includes_logprobs(body))
    to.flag("logprobs", true).number("top_logprobs", top.value_or(0));
  else if (top && *top > 0)
    body.refuse("top_logprobs", "needs \"message.output_text.logprobs\" in `include`");
  add_format(to, body);
  add_tools(to, body);
  const auto reasoning = add_reasoning(to, body);
  const auto metadata = metadata_of(body);
  for (auto [key, value] : json::object(body.body()))
    if (std::ranges::find(own_fields, std::string_view(key)) == own_fields.end() && !value.is_null())
      to.value(key, value);
  result.asked = parse_translated(dialect::chat, to.str(), model, names, stop);
  result.asked.stream = body.boolean("stream").value_or(false);
  result.repeated = repeated_members(body, result, metadata, reasoning);
  return result;
}

} // namespace troupe
