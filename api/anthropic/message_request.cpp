#include "api/anthropic/message_request.hpp"

#include "api/anthropic/message_input.hpp"
#include "api/anthropic/message_tools.hpp"
#include "api/openai/fields/known_fields.hpp"
#include "api/openai/responses/item_fields.hpp"
#include "api/openai/translated_request.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/json/json_object.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

constexpr auto message_names = std::to_array<field_name>({
  {"stop", "stop_sequences"},
  {"thinking_token_budget", "thinking.budget_tokens"},
  {"reasoning_effort", "output_config.effort"},
  {"response_format.json_schema.schema", "output_config.format.schema"},
  {"response_format", "output_config.format"},
  {"].function.parameters", "].input_schema"}, // of tools
  {"].function.", "]."},
  {"tool_choice.function", "tool_choice"},
});

/// Members that are translated, or have no influence.
constexpr auto message_fields = std::to_array<std::string_view>({
  "system",
  "messages",
  "max_tokens",
  "stop_sequences",
  "stream",
  "output_config",
  "output_format",
  "tools",
  "tool_choice",
  "metadata",
  "service_tier",
  "cache_control",
  "container",
  "context_management",
  "mcp_servers",
  "inference_geo",
  "speed",
  "anthropic_version", // in the body, as of Bedrock's and Vertex's clients
  "anthropic_beta",
  "betas",
});

/// Members of chats that have another name here, or would change what an answer is.
constexpr auto members_of_chats = std::to_array<std::string_view>({
  "stop",
  "n",
  "best_of",
  "prompt_logprobs",
  "logprobs",
  "top_logprobs",
  "echo",
  "max_completion_tokens",
  "n_predict",
  "response_format",
  "reasoning_effort",
  "parallel_tool_calls",
  "functions",
  "return_token_ids",
  "stream_options",
  "continue_final_message",
  "add_generation_prompt",
});

/// The rest of `thinking` is as in chats.
void add_display(json_object& to, const field_reader& body) {
  const auto thinking = body.object("thinking");
  if (thinking && thinking->text("display") == "omitted" && !body.has("include_reasoning"))
    to.flag("include_reasoning", false);
}

void add_message_format(json_object& to, const field_reader& of, std::string_view key) {
  const auto format = of.object(key);
  if (!format)
    return;
  if (const auto type = needed_text(*format, "type"); type != "json_schema")
    format->refuse("type", "must be \"json_schema\", not \"" + std::string(type) + '"');
  const auto schema = format->object("schema");
  if (!schema)
    format->refuse("schema", "is required");
  to.object("response_format",
            json_object()
              .text("type", "json_schema")
              .object("json_schema",
                      json_object().text("name", "format").value("schema", schema->body()).flag("strict", true)));
}

void add_output_config(json_object& to, const field_reader& body) {
  const auto config = body.object("output_config");
  if (const auto effort = config ? config->text("effort") : std::nullopt) {
    constexpr auto efforts = std::to_array<std::string_view>({"low", "medium", "high", "xhigh", "max"});
    if (std::ranges::find(efforts, *effort) == efforts.end())
      config->refuse(
        "effort", "must be \"low\", \"medium\", \"high\", \"xhigh\" or \"max\", not \"" + std::string(*effort) + '"');
    // Templates know three.
    to.text("reasoning_effort", *effort == "xhigh" || *effort == "max" ? "high" : *effort);
  }
  if (config && config->has("format"))
    add_message_format(to, *config, "format");
  else
    add_message_format(to, body, "output_format"); // its name before that
}

bool asks_for(const field_reader& body, std::string_view key) {
  const auto found = body.find(key);
  return found && !(found->is_array() && json::array(*found).size() == 0);
}

/// A request, translated into a chat.
struct message_chat {
  std::string body;
  message_input input;
  message_tools tools;

  /// Every field of the chat that the client calls otherwise. Points into this.
  std::vector<field_name> field_names() const {
    std::vector<field_name> result;
    for (const auto* paths : {&input.paths, &tools.paths})
      for (const auto& [chats, own] : *paths)
        if (chats != own)
          result.push_back({chats, own});
    result.insert(result.end(), message_names.begin(), message_names.end());
    return result;
  }
};

message_chat chat_of_message(const field_reader& body) {
  for (const auto name : members_of_chats)
    if (body.has(name))
      unsupported_value(std::string(name), "is not a field of messages");
  if (const auto several = field_for_several(body); !several.empty())
    unsupported_value(std::string(several), "is not a field of messages");
  message_chat result;
  result.input = read_message_input(body);
  result.tools = read_message_tools(body);
  json_object to;
  to.list("messages", result.input.messages);
  if (result.input.continues)
    to.flag("continue_final_message", true);
  if (!result.tools.tools.empty())
    to.list("tools", result.tools.tools);
  if (!result.tools.choice.empty())
    to.raw("tool_choice", result.tools.choice);
  if (!result.tools.parallel)
    to.flag("parallel_tool_calls", false);
  if (const auto stops = body.find("stop_sequences"))
    to.value("stop", *stops);
  add_display(to, body);
  add_output_config(to, body);
  for (auto [key, value] : json::object(body.body()))
    if (std::ranges::find(message_fields, std::string_view(key)) == message_fields.end() && !value.is_null())
      to.value(key, value);
  result.body = to.str();
  for (const auto* name : {"mcp_servers", "container"})
    if (asks_for(body, name))
      result.tools.notes.push_back('`' + std::string(name) + "` has no effect: this server runs no tools");
  return result;
}

} // namespace

message_request parse_message_request(const field_reader& body, const served_model& model,
                                      const std::stop_token& stop) {
  check_model_name(body, model);
  const auto limit = body.integer("max_tokens", 1, sampling_fields::most_int);
  if (!limit)
    body.refuse("max_tokens", "is required");
  message_request result;
  const auto chat = chat_of_message(body);
  result.notes = chat.tools.notes;
  result.asked = parse_translated(dialect::chat, chat.body, model, chat.field_names(), stop);
  result.asked.stream = body.boolean("stream").value_or(false);
  result.stop_sequences = body.texts("stop_sequences", most_choices).value_or(result.stop_sequences);
  auto& sampling = result.asked.prompts.front().sampling;
  result.wants_more = *limit > sampling.max_tokens;
  sampling.max_tokens = static_cast<int>(std::min<std::int64_t>(*limit, sampling.max_tokens));
  if (sampling.min_tokens > sampling.max_tokens)
    body.refuse("min_tokens", "must be at most " + std::to_string(sampling.max_tokens) + ", the most to be generated");
  result.notes.insert(result.notes.end(), result.asked.notes.begin(), result.asked.notes.end());
  return result;
}

counted_prompt count_message_request(const field_reader& body, const served_model& model, const std::stop_token& stop) {
  check_model_name(body, model);
  const auto chat = chat_of_message(body);
  auto result = count_translated(chat.body, model, chat.field_names(), stop, ~std::size_t{0});
  result.notes.insert(result.notes.begin(), chat.tools.notes.begin(), chat.tools.notes.end());
  return result;
}

} // namespace troupe
