#include "api/openai/responses/response_input.hpp"

#include "api/openai/chat_messages.hpp"
#include "api/openai/object_id.hpp"
#include "api/openai/responses/item_fields.hpp"
#include "api/openai/responses/response_tools.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/base64.hpp"
#include "runtime/support/text/utf8.hpp"

#include <array>

namespace troupe {

namespace {

/// What the reasoning in `encrypted_content` begins with, so that another server's is not taken for it.
constexpr std::string_view seal = "troupe\n";

std::string part_text(const field_reader& part) {
  const auto type = part.text("type").value_or("text");
  if (type == "refusal")
    return std::string(needed_text(part, "refusal"));
  if (type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text" &&
      type != "summary_text")
    unsupported_value(part.path("type"), "is \"" + std::string(type) + "\"; " + why_text_only(type));
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

/// Told in the clear, or handed back as the server gave it; what another server has encrypted says nothing here.
void add_reasoning(const field_reader& item, conversation& to) {
  bool told = false;
  for (const auto* key : {"content", "summary"})
    if (const auto parts = told ? std::nullopt : item.list(key))
      for (const auto& text : texts_of(item, key, *parts)) {
        to.add_reasoning(text);
        told = true;
      }
  if (const auto sealed = told ? std::nullopt : item.text("encrypted_content"))
    to.add_reasoning(opened_reasoning(*sealed));
}

void add_item(const field_reader& item, conversation& to, bool& compacted) {
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
    to.add_call(needed_text(item, "call_id"), shown_function(item), needed_text(item, "arguments"));
  } else if (type == "function_call_output") {
    const auto id = needed_text(item, "call_id");
    if (!compacted && !to.has_call(id)) // a compaction leaves out calls whose outputs may follow it
      item.refuse("call_id", "matches no function_call before it: `" + std::string(id) + "`");
    to.add_call_output(id, content_of(item, "output"));
  } else if (type == "reasoning") {
    add_reasoning(item, to);
  } else if (type == "compaction" || type == "compaction_summary") {
    compacted = true;
    if (const auto summary = opened_reasoning(needed_text(item, "encrypted_content")); !summary.empty())
      to.add_message("user", json_text("Summary of the conversation so far:\n" + summary));
  } else {
    unsupported_value(item.path("type"), "is \"" + std::string(type) + "\", which is not supported");
  }
}

std::string_view id_prefix(std::string_view type) {
  return type == "compaction"        ? "cmp_"
    : type == "message"              ? "msg_"
    : type == "function_call"        ? "fc_"
    : type == "function_call_output" ? "fco_"
                                     : "rs_";
}

/// The content of a message as a list of parts, as it is listed.
std::string listed_content(const field_reader& item, bool assistant) {
  const auto part_of = [&](std::string_view text) {
    json_object part;
    part.text("type", assistant ? "output_text" : "input_text").text("text", text);
    if (assistant)
      part.raw("annotations", "[]").raw("logprobs", "[]");
    return part.str();
  };
  if (const auto parts = item.find("content"); parts->is_array()) {
    std::vector<std::string> result;
    for (auto given : json::array(*parts)) {
      const field_reader part(given);
      const bool refuses = part.text("type") == "refusal";
      result.push_back(refuses ? json::minified(given) : part_of(part_text(part)));
    }
    return json_list(result);
  }
  return '[' + part_of(*item.text("content")) + ']';
}

/// The item as it is listed: with a type, an id, a status, and a list as content.
std::string listed_item(const field_reader& item) {
  const auto type = item.text("type").value_or("message");
  json_object result;
  result.text("type", type);
  const auto id = item.text("id");
  result.text("id", id ? std::string(*id) : object_id(id_prefix(type)));
  result.raw("status", given_or(item, "status", "\"completed\""));
  for (auto [key, value] : json::object(item.body())) {
    const bool is_content = type == "message" && key == "content";
    if (is_content)
      result.raw("content", listed_content(item, item.text("role") == "assistant"));
    else if (key != "type" && key != "id" && key != "status" && !value.is_null())
      result.value(key, value);
  }
  if (type == "reasoning" && !item.has("summary"))
    result.raw("summary", "[]");
  return result.str();
}

} // namespace

std::string sealed_reasoning(std::string_view text) { return encode_base64(std::string(seal) + std::string(text)); }

std::string opened_reasoning(std::string_view sealed) {
  const auto text = decode_base64(sealed);
  return text && text->starts_with(seal) && is_utf8(*text) ? text->substr(seal.size()) : std::string();
}

std::string read_response_input(const field_reader& body, conversation& to) {
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
                                  .text("status", "completed")
                                  .text("role", "user")
                                  .raw("content", '[' + part + ']')
                                  .str()});
  }
  json::array items;
  if (found->get(items))
    body.refuse("input", "a string or a list of items", *found);
  check_entries(body, "input", items.size(), most_input_items);
  std::vector<std::string> listed;
  bool compacted = false;
  for (auto given : items) {
    const auto name = item_path("input", listed.size());
    if (!given.is_object())
      body.refuse(name, "an object", given);
    const field_reader item(given, name);
    add_item(item, to, compacted);
    listed.push_back(listed_item(item));
  }
  return json_list(listed);
}

} // namespace troupe
