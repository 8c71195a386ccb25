#include "api/openai/chat_messages.hpp"

#include "runtime/chat/chat_template.hpp"
#include "runtime/engine/checked_generation.hpp"

namespace troupe {

namespace {

[[noreturn]] void refuse_for_templates(const field_reader& at, std::string_view key, const std::exception& why) {
  at.refuse(key, std::string("cannot be given to a template: ") + why.what());
}

jinja::value to_template(const field_reader& at, std::string_view key, json::value given) {
  try {
    return jinja::from_json(given);
  } catch (const failure& f) {
    refuse_for_templates(at, key, f);
  }
}

/// Bytes of text in `v`, keys included, plus 8 per value. Stops counting beyond `most`.
std::size_t bytes_of(json::value v, std::size_t most) {
  std::size_t sum = 8;
  if (v.is_string()) {
    sum += std::string_view(v).size();
  } else if (v.is_array()) {
    for (auto item : json::array(v))
      if ((sum += bytes_of(item, most)) > most)
        break;
  } else if (v.is_object()) {
    for (auto [key, item] : json::object(v))
      if ((sum += key.size() + bytes_of(item, most)) > most)
        break;
  }
  return sum;
}

void refuse_large(const field_reader& body, std::string_view key, std::size_t most_bytes,
                  std::size_t most_entries = std::size_t(-1)) {
  const auto found = body.find(key);
  if (!found)
    return;
  if (found->is_array())
    check_entries(body, key, json::array(*found).size(), most_entries);
  if (bytes_of(*found, most_bytes) > most_bytes)
    body.refuse(key, "may hold at most " + std::to_string(most_bytes) + " bytes of text and values");
}

/// The text of a part of a message's content: a string, or an object. The model's refusals are texts that it said.
std::string_view text_of_part(const field_reader& message, const std::string& name, json::value item) {
  std::string_view text;
  if (!item.get(text))
    return text;
  if (!item.is_object())
    message.refuse(name, "an object or a string", item);
  const field_reader part(item, message.path(name));
  const auto type = part.text("type").value_or("text");
  const bool refusal = type == "refusal";
  if (!refusal && type != "text" && type != "input_text" && type != "output_text")
    throw failure(errc::unsupported,
                  "`" + part.path("type") + "` is \"" + std::string(type) + "\"; " + why_text_only(type),
                  part.path("type"));
  const auto given = part.text(refusal ? "refusal" : "text");
  if (!given)
    part.refuse(refusal ? "refusal" : "text", "is required");
  return *given;
}

/// Joins text parts with line feeds, as other servers do for templates that expect strings.
std::string joined_parts(const field_reader& message, json::array parts) {
  std::string result;
  std::size_t number = 0;
  for (auto item : parts) {
    const auto text = text_of_part(message, "content[" + std::to_string(number) + "]", item);
    if (number++ > 0)
      result += '\n';
    result += text;
  }
  return result;
}

/// Null, or a list without entries. Clients send all members that their classes have; templates ask which are there.
bool says_nothing(json::value item) { return item.is_null() || (item.is_array() && json::array(item).size() == 0); }

/// The dict of an object's members that say something, made by `value_of(key, item)`.
template <class Make>
jinja::value dict_of(const field_reader& object, Make value_of) {
  jinja::dict result;
  for (auto [key, item] : json::object(object.body()))
    if (!says_nothing(item))
      result.set(key, value_of(std::string_view(key), item));
  return result;
}

/// The member `function` of a call or tool; it must have a name.
field_reader named_function(const field_reader& of) {
  auto function = of.object("function");
  if (!function)
    of.refuse("function", "is required");
  if (!function->text("name"))
    function->refuse("name", "is required");
  return *std::move(function);
}

jinja::value read_call(const field_reader& call) {
  const auto function = named_function(call);
  const auto member = [&](std::string_view key, json::value item) {
    return key == "arguments" ? open_arguments(function, item) : to_template(function, key, item);
  };
  return dict_of(call, [&](std::string_view key, json::value item) {
    return key == "function" ? dict_of(function, member) : to_template(call, key, item);
  });
}

/// A list of objects, each read by `read`.
template <class Read>
jinja::value read_objects(const field_reader& at, std::string_view key, json::array given, Read read) {
  std::vector<jinja::value> result;
  for (auto item : given) {
    const auto name = std::string(key) + '[' + std::to_string(result.size()) + ']';
    if (!item.is_object())
      at.refuse(name, "an object", item);
    result.push_back(read(field_reader(item, at.path(name))));
  }
  return jinja::value::list(std::move(result));
}

/// Returns `make()`. Turns the fault of values that are too deep or too large into an error about the body's member.
template <class Make>
auto made_of(const field_reader& body, std::string_view key, Make make) {
  try {
    return make();
  } catch (const jinja::fault& f) {
    refuse_for_templates(body, key, f);
  }
}

jinja::value read_message(const field_reader& message) {
  const auto role = message.text("role");
  if (!role || role->empty())
    message.refuse("role", "is required");
  const auto content = message.find("content");
  const auto calls = message.list("tool_calls");
  const bool has_calls = calls && calls->size() > 0;
  if (content && !content->is_string() && !content->is_array())
    message.refuse("content", "a string or a list of text parts", *content);
  const auto refusal = message.text("refusal");
  if (!content && !has_calls && *role != "assistant" && *role != "tool")
    message.refuse("content", "is required");
  // Null content tells some templates that there are calls; without calls, templates would show it.
  jinja::dict members;
  for (auto [key, item] : json::object(message.body())) {
    if (key == "content" && !content)
      members.set(key, has_calls ? jinja::value(nullptr) : jinja::value(std::string(refusal.value_or(""))));
    else if (key == "content" && item.is_array())
      members.set(key, joined_parts(message, item));
    else if (!says_nothing(item))
      members.set(
        key, key == "tool_calls" ? read_objects(message, key, *calls, read_call) : to_template(message, key, item));
  }
  if (!members.find(std::string_view("content")) && !has_calls)
    members.set("content", std::string(refusal.value_or("")));
  // The other name of what templates call `reasoning_content`.
  if (const auto reasoning = message.find("reasoning");
      reasoning && reasoning->is_string() && !message.has("reasoning_content"))
    members.set("reasoning_content", to_template(message, "reasoning", *reasoning));
  return jinja::value(std::move(members));
}

jinja::value read_tool(const field_reader& tool) {
  check_function_type(tool);
  const auto function = named_function(tool);
  const auto member = [&](std::string_view key, json::value item) { return to_template(function, key, item); };
  return dict_of(tool, [&](std::string_view key, json::value item) {
    return key == "function" ? dict_of(function, member) : to_template(tool, key, item);
  });
}

bool tools_are_offered(const field_reader& body) {
  const auto choice = body.find("tool_choice");
  std::string_view word;
  return !choice || choice->get(word) || word != "none";
}

/// DeepSeek's and Anthropic's switch, by the names that templates have for it: Qwen, GLM and SmolLM `enable_thinking`,
/// DeepSeek `thinking`. What `chat_template_kwargs` says wins.
void read_thinking(const field_reader& body, jinja::dict& variables) {
  const auto thinking = body.object("thinking");
  if (!thinking)
    return;
  const auto type = thinking->text("type");
  if (!type)
    thinking->refuse("type", "is required");
  if (*type != "enabled" && *type != "adaptive" && *type != "disabled")
    thinking->refuse("type", "must be \"enabled\", \"adaptive\" or \"disabled\", not \"" + std::string(*type) + '"');
  for (const char* name : {"enable_thinking", "thinking"})
    if (!variables.find(std::string_view(name)))
      variables.set(name, *type != "disabled");
}

/// `verbosity` is a variable, too.
void read_verbosity(const field_reader& body, jinja::dict& variables) {
  const auto wanted = body.text("verbosity");
  if (!wanted)
    return;
  if (*wanted != "low" && *wanted != "medium" && *wanted != "high")
    body.refuse("verbosity", "must be \"low\", \"medium\" or \"high\", not \"" + std::string(*wanted) + '"');
  if (!variables.find(std::string_view("verbosity")))
    variables.set("verbosity", std::string(*wanted));
}

/// What a template that does not name `verbosity` leaves out; "medium" is how models answer anyway.
bool loses_verbosity(const served_model& model, const jinja::dict& variables) {
  const auto* wanted = variables.find(std::string_view("verbosity"));
  const bool asks = wanted && wanted->is_string() && wanted->str() != "medium";
  return asks && (!model.chat || model.chat->text().find("verbosity") == std::string::npos);
}

/// `reasoning_effort` is a variable; "none" also turns reasoning off, by the names that templates have for it.
void read_effort(const field_reader& body, jinja::dict& variables) {
  const auto given = body.find("reasoning_effort");
  if (!given)
    return;
  variables.set("reasoning_effort", to_template(body, "reasoning_effort", *given));
  std::string_view word;
  if (given->get(word) || word != "none")
    return;
  for (const char* name : {"enable_thinking", "thinking"})
    if (!variables.find(std::string_view(name)))
      variables.set(name, false);
}

constexpr std::string_view reasoning_member = "reasoning_content"; // as templates call it

/// A text of the last message, if it has one.
std::optional<std::string_view> last_text(const chat_input& chat, std::string_view member) {
  const auto* found = chat.messages.seq().items.back().map().find(member);
  return found && found->is_string() ? std::optional<std::string_view>(found->str()) : std::nullopt;
}

} // namespace

std::string why_text_only(std::string_view type) {
  constexpr auto text_only = "this model reads text only";
  if (type.find("image") == type.npos)
    return text_only;
  return std::string(text_only) +
    ": an image needs a vision encoder, and this server has none; rows that one has made can be given to "
    "/v1/completions as `prompt_embeds`";
}

jinja::value open_arguments(const field_reader& function, json::value given) {
  std::string_view text;
  if (given.get(text)) {
    if (!given.is_object())
      function.refuse("arguments", "a JSON object, as a string or as such", given);
    return to_template(function, "arguments", given);
  }
  if (text.empty())
    return jinja::dict();
  try {
    const auto parsed = json::document::parse(text, "its text", errc::bad_request);
    if (parsed.root().is_object())
      return to_template(function, "arguments", parsed.root());
  } catch (const failure&) { // as an answer's that was cut off, or a model's that writes no JSON
  }
  return jinja::value(text);
}

chat_input read_chat(const field_reader& body) {
  chat_input result;
  const auto messages = body.list("messages");
  if (!messages)
    body.refuse("messages", "is required");
  refuse_large(body, "messages", most_message_bytes, most_messages);
  refuse_large(body, "tools", most_tool_bytes, most_tools);
  refuse_large(body, "chat_template_kwargs", most_variable_bytes);
  refuse_large(body, "documents", most_message_bytes);
  refuse_large(body, "reasoning_effort", most_variable_bytes);
  result.messages = made_of(body, "messages", [&] { return read_objects(body, "messages", *messages, read_message); });
  if (!result.messages.truth())
    body.refuse("messages", "must have at least one message");
  if (const auto tools = body.list("tools"))
    result.tools = made_of(body, "tools", [&] { return read_objects(body, "tools", *tools, read_tool); });
  if (!tools_are_offered(body) || !result.tools.truth())
    result.tools = nullptr;
  if (const auto variables = body.object("chat_template_kwargs"))
    result.variables = to_template(body, "chat_template_kwargs", variables->body()).map();
  if (const auto given = body.find("documents"))
    made_of(body, "documents", [&] { result.variables.set("documents", to_template(body, "documents", *given)); });
  read_thinking(body, result.variables);
  read_verbosity(body, result.variables);
  made_of(body, "reasoning_effort", [&] { read_effort(body, result.variables); });

  result.continue_final_message = body.boolean("continue_final_message").value_or(false);
  result.add_generation_prompt = body.boolean("add_generation_prompt").value_or(!result.continue_final_message);
  if (result.continue_final_message && result.add_generation_prompt)
    body.refuse("continue_final_message", "and `add_generation_prompt` cannot both be true");
  const auto content = last_text(result, "content"), reasoning = last_text(result, reasoning_member);
  if (result.continue_final_message && !content && !reasoning)
    body.refuse("continue_final_message", "needs a last message with text");
  result.continues_reasoning = result.continue_final_message && trimmed(content.value_or("")).empty() &&
    !trimmed(reasoning.value_or("")).empty();
  return result;
}

whole_prompt render_chat(const served_model& model, const chat_input& chat) {
  if (!model.render)
    throw model.generates
      ? failure(errc::bad_request, "this model has no chat template: use /v1/completions", "messages")
      : encodes_only();
  plain_marks marks(model.specials_in);
  auto asked = chat;
  asked.tools = marks.on(chat.tools);
  if (const auto* documents = chat.variables.find("documents"))
    asked.variables.set("documents", marks.on(*documents));
  const auto render = [&](const jinja::value& messages) {
    asked.messages = messages;
    return model.render(asked);
  };
  auto prompt = render_whole(chat.messages, render, marks, chat.continue_final_message);
  auto note = note_on_tools(chat.tools, prompt.text, [&](const jinja::value& tools) {
    auto other = chat;
    other.tools = tools;
    return model.render(other);
  });
  if (note)
    prompt.notes.push_back(*std::move(note));
  if (loses_verbosity(model, chat.variables))
    prompt.notes.emplace_back("`verbosity` has no effect: the model's chat template does not name it");
  if (!chat.continue_final_message)
    return prompt;
  const auto text = trimmed(last_text(chat, chat.continues_reasoning ? reasoning_member : "content").value_or(""));
  const auto found = prompt.text.rfind(text);
  if (found == prompt.text.npos)
    throw failure(errc::bad_request, "`continue_final_message`: the chat template changes the last message's text",
                  "continue_final_message");
  prompt.text.resize(found + text.size());
  std::erase_if(prompt.plain_at, [&](std::size_t at) { return at >= prompt.text.size(); });
  return prompt;
}

} // namespace troupe
