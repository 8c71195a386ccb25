#include "api/openai/responses/response_request.hpp"
#include "api/openai/fields/known_fields.hpp"

#include "api/openai/responses/conversation.hpp"
#include "api/openai/responses/item_fields.hpp"
#include "api/openai/responses/response_input.hpp"
#include "api/openai/responses/response_window.hpp"
#include "api/openai/translated_request.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

constexpr auto names = std::to_array<field_name>({
  {"max_completion_tokens", "max_output_tokens"},
  {"response_format.json_schema", "text.format"},
  {"response_format", "text.format"},
  {"reasoning_effort", "reasoning.effort"},
  {"verbosity", "text.verbosity"},
  {"messages", "input"},
  {"].function.", "]."}, // of tools
  {"tool_choice.function", "tool_choice"},
  {"tool_choice.allowed_tools", "tool_choice"},
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
  "type", // of a WebSocket's events
  "stream_id",
  "generate",
});

/// Members of chats that would change what an answer is.
constexpr auto foreign_fields = std::to_array<std::string_view>({
  "messages",
  "n",
  "best_of",
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

void refuse_what_is_not_supported(const field_reader& body) {
  for (const auto name : foreign_fields)
    if (body.has(name))
      unsupported_value(std::string(name), "is not a field of responses");
  if (const auto several = field_for_several(body); !several.empty())
    unsupported_value(std::string(several), "is not a field of responses");
  if (body.boolean("background").value_or(false))
    unsupported_value("background", "is not supported: answers are returned at once or streamed");
  for (const auto* name : {"conversation", "prompt"})
    if (body.has(name))
      unsupported_value(name, "is not supported");
  body.integer("max_tool_calls", 1, sampling_fields::most_int); // of tools that the server runs: there are none
  if (const auto list = body.list("include", 64))
    for (auto item : *list) {
      std::string_view what;
      if (item.get(what))
        body.refuse("include", "a list of strings", item);
      if (what != "message.output_text.logprobs" && what != "reasoning.encrypted_content")
        unsupported_value("include", "names `" + std::string(what) + "`, which is not supported");
    }
}

bool includes(const field_reader& body, std::string_view wanted) {
  const auto list = body.list("include", 64);
  return list && std::ranges::any_of(*list, [&](json::value item) {
           std::string_view what;
           return !item.get(what) && what == wanted;
         });
}

/// One of a few words, or `fallback`.
std::string_view word_of(const field_reader& of, std::string_view key, std::initializer_list<std::string_view> known,
                         std::string_view fallback) {
  const auto given = of.text(key);
  if (!given || std::ranges::find(known, *given) != known.end())
    return given.value_or(fallback);
  std::string wanted;
  for (const auto& one : known)
    wanted += (wanted.empty() ? "\"" : &one == known.end() - 1 ? " or \"" : ", \"") + std::string(one) + '"';
  of.refuse(key, "must be " + wanted + ", not \"" + std::string(*given) + '"');
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
  return json::minified(given->body());
}

/// Returns what the response repeats of `text`.
std::string add_format(json_object& to, const field_reader& body) {
  constexpr auto plain = R"({"type":"text"})";
  const auto text = body.object("text");
  if (!text)
    return json_object().raw("format", plain).str();
  json_object repeated;
  const auto format = text->object("format");
  if (!format) {
    repeated.raw("format", plain);
  } else if (const auto type = needed_text(*format, "type"); type != "json_schema") {
    to.value("response_format", format->body());
    repeated.value("format", format->body());
  } else {
    json_object schema;
    for (auto [key, value] : json::object(format->body()))
      if (key != "type")
        schema.value(key, value);
    to.raw("response_format", json_object().text("type", type).raw("json_schema", schema.str()).str());
    repeated.raw("format",
                 json_object()
                   .text("type", type)
                   .raw("name", given_or(*format, "name", "null"))
                   .raw("description", given_or(*format, "description", "null"))
                   .raw("schema", given_or(*format, "schema", "null"))
                   .raw("strict", given_or(*format, "strict", "false"))
                   .str());
  }
  if (text->has("verbosity")) {
    const auto wanted = word_of(*text, "verbosity", {"low", "medium", "high"}, "");
    to.text("verbosity", wanted);
    repeated.text("verbosity", wanted);
  }
  return repeated.str();
}

/// Returns what the response repeats of it. Reasoning is told whole, whatever summary is asked for.
std::string add_reasoning(json_object& to, const field_reader& body) {
  const auto given = body.object("reasoning");
  const auto effort = given ? given->text("effort") : std::nullopt;
  if (effort)
    to.text("reasoning_effort", *effort);
  std::string summary = "null";
  for (const auto* key : {"generate_summary", "summary"})
    if (given && given->has(key))
      summary = json_text(word_of(*given, key, {"auto", "concise", "detailed", "none"}, ""));
  if (summary == "\"none\"")
    summary = "null";
  return json_object().raw("effort", effort ? json_text(*effort) : "null").raw("summary", summary).str();
}

/// A request, translated into the members of a chat.
struct translation {
  json_object members;   // without the messages
  std::string messages;  // a JSON list
  std::string input;     // the input items: a JSON list
  std::string continued; // the conversation without instructions: messages, separated by commas
  response_tools tools;
  std::string format, reasoning, metadata; // as the response repeats them
  bool truncates = false;

  std::string chat(const std::string& list) const {
    return json_object().raw("messages", list).members_of(members).str();
  }
  /// Every field of the chat that the client calls otherwise. Points into `tools`.
  std::vector<field_name> field_names() const {
    std::vector<field_name> result;
    for (const auto& [chats, own] : tools.paths)
      if (chats != own)
        result.push_back({chats, own});
    result.insert(result.end(), names.begin(), names.end());
    return result;
  }
};

std::string earlier_messages(const field_reader& body, const response_shelf& stored) {
  const auto id = body.text("previous_response_id");
  if (!id)
    return {};
  const auto found = stored.find(std::string(*id));
  if (!found)
    throw failure(errc::not_found, "there is no response `" + std::string(*id) + "`, or not any more",
                  "previous_response_id");
  return found->messages;
}

translation translate(const field_reader& body, const served_model& model, const response_shelf& stored) {
  check_model_name(body, model);
  refuse_what_is_not_supported(body);
  translation result;
  conversation chat(earlier_messages(body, stored));
  result.input = read_response_input(body, chat);
  result.continued = chat.messages();
  result.messages = listed_messages(std::string(body.text("instructions").value_or("")), result.continued);
  result.truncates = word_of(body, "truncation", {"auto", "disabled"}, "disabled") == "auto";

  auto& to = result.members;
  if (const auto limit = body.integer("max_output_tokens", 1, sampling_fields::most_int))
    to.number("max_completion_tokens", *limit);
  const auto top = body.integer("top_logprobs", 0, sampling_fields::most_logprobs);
  if (includes(body, "message.output_text.logprobs"))
    to.flag("logprobs", true).number("top_logprobs", top.value_or(0));
  else if (top && *top > 0)
    body.refuse("top_logprobs", "needs \"message.output_text.logprobs\" in `include`");
  result.format = add_format(to, body);
  result.tools = read_response_tools(body);
  if (!result.tools.tools.empty())
    to.raw("tools", result.tools.tools);
  if (!result.tools.choice.empty())
    to.raw("tool_choice", result.tools.choice);
  result.reasoning = add_reasoning(to, body);
  result.metadata = metadata_of(body);
  for (auto [key, value] : json::object(body.body()))
    if (std::ranges::find(own_fields, std::string_view(key)) == own_fields.end() && !value.is_null())
      to.value(key, value);
  return result;
}

/// The messages that fit into the context together with the answer.
std::string fitting_messages(const translation& from, const field_reader& body, const served_model& model,
                             const std::stop_token& stop) {
  if (!from.truncates)
    return from.messages;
  const auto answer = body.integer("max_output_tokens", 1, sampling_fields::most_int).value_or(1);
  if (answer >= model.max_context)
    return from.messages; // which will be refused
  const auto room = static_cast<std::size_t>(model.max_context - answer);
  const auto fields = from.field_names();
  return newest_messages(from.messages, [&](const std::string& list) {
    return count_translated(from.chat(list), model, fields, stop, room).tokens <= room;
  });
}

/// What the response object repeats of the request.
std::string repeated_members(const field_reader& body, const response_request& request, const translation& from) {
  const auto& sampling = request.asked.prompts.front().sampling;
  const auto members = json_object()
                         .flag("background", false)
                         .raw("frequency_penalty", shortest_digits(sampling.frequency_penalty))
                         .raw("instructions", given_or(body, "instructions", "null"))
                         .raw("max_output_tokens", given_or(body, "max_output_tokens", "null"))
                         .raw("max_tool_calls", given_or(body, "max_tool_calls", "null"))
                         .raw("metadata", from.metadata)
                         .raw("parallel_tool_calls", given_or(body, "parallel_tool_calls", "true"))
                         .raw("presence_penalty", shortest_digits(sampling.presence_penalty))
                         .raw("previous_response_id", given_or(body, "previous_response_id", "null"))
                         .raw("prompt_cache_key", given_or(body, "prompt_cache_key", "null"))
                         .raw("reasoning", from.reasoning)
                         .raw("safety_identifier", given_or(body, "safety_identifier", "null"))
                         .text("service_tier", "default")
                         .flag("store", request.store)
                         .raw("temperature", given_or(body, "temperature", shortest_digits(sampling.temperature)))
                         .raw("text", from.format)
                         .raw("tool_choice", from.tools.repeated_choice)
                         .raw("tools", from.tools.repeated_tools)
                         .number("top_logprobs", std::max(sampling.logprobs, 0))
                         .raw("top_p", given_or(body, "top_p", shortest_digits(sampling.top_p)))
                         .text("truncation", from.truncates ? "auto" : "disabled")
                         .raw("user", given_or(body, "user", "null"))
                         .str();
  return members.substr(1, members.size() - 2);
}

} // namespace

response_request parse_response_request(const field_reader& body, const served_model& model,
                                        const response_shelf& stored, const std::stop_token& stop) {
  auto from = translate(body, model, stored);
  response_request result;
  result.store = body.boolean("store").value_or(true);
  result.generates = !stored.connection || body.boolean("generate").value_or(true);
  result.seals_reasoning = includes(body, "reasoning.encrypted_content");
  const auto fields = from.field_names();
  result.asked = parse_translated(dialect::chat, from.chat(fitting_messages(from, body, model, stop)), model, fields,
                                  stop);
  result.asked.stream = body.boolean("stream").value_or(false);
  result.repeated = repeated_members(body, result, from);
  result.input = std::move(from.input);
  result.messages = std::move(from.continued);
  result.namespaces = std::make_shared<const tool_namespaces>(std::move(from.tools.namespaces));
  result.notes = std::move(from.tools.notes);
  return result;
}

counted_prompt count_input_tokens(const field_reader& body, const served_model& model, const response_shelf& stored,
                                  const std::stop_token& stop) {
  const auto from = translate(body, model, stored);
  auto result = count_translated(from.chat(from.messages), model, from.field_names(), stop, ~std::size_t{0});
  result.notes.insert(result.notes.begin(), from.tools.notes.begin(), from.tools.notes.end());
  return result;
}

} // namespace troupe
