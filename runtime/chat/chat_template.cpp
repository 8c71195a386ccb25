#include "runtime/chat/chat_template.hpp"

#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json.hpp"

namespace troupe {

namespace {

namespace fs = std::filesystem;

jinja::program parse_bounded(std::string_view source) {
  if (source.size() > files::chat_template.most_bytes)
    throw failure(errc::bad_file,
                  "has " + std::to_string(source.size()) + " bytes, a chat template has at most " +
                    std::to_string(files::chat_template.most_bytes));
  return jinja::program::parse(source);
}

jinja::program parse_named(std::string_view source, const std::string& name) {
  try {
    return parse_bounded(source);
  } catch (const failure& f) {
    throw failure(f.what_failed().code, name + ": " + f.what());
  }
}

/// The template sources of one file layout: the default, and an optional one for requests with tools.
struct sources {
  std::string standard, standard_name;
  std::optional<std::string> tool_use;
  std::string tool_use_name;
};

/// The string member `key` of an object. Throws failure(bad_file) if it is absent or no string.
std::string member_string(json::value object, std::string_view key, const std::string& where) {
  std::string_view text;
  const auto found = json::find(object, key);
  if (!found || found->get(text))
    throw failure(errc::bad_file,
                  where + ": `" + std::string(key) + "` must be a string, found " +
                    (found ? std::string(json::kind_of(*found)) : "nothing"));
  return std::string(text);
}

std::optional<sources> from_json_file(const fs::path& file) {
  if (!is_there(file))
    return std::nullopt;
  const auto document = json::document::load(file);
  const auto found = json::find(document.root(), "chat_template");
  if (!found)
    return std::nullopt;
  const auto where = file.string() + ": `chat_template`";
  std::string_view text;
  if (!found->get(text))
    return sources{std::string(text), where, std::nullopt, {}};
  json::array named;
  if (found->get(named))
    throw failure(errc::bad_file, where + " must be a string or an array, found " + std::string(json::kind_of(*found)));
  std::optional<sources> result;
  std::optional<std::string> tool_use;
  for (auto entry : named) {
    const auto name = member_string(entry, "name", where);
    auto source = member_string(entry, "template", where);
    if (name == "default")
      result = sources{std::move(source), where + " \"default\"", std::nullopt, {}};
    else if (name == "tool_use")
      tool_use = std::move(source);
  }
  if (!result)
    throw failure(errc::bad_file, where + " must have a template named \"default\"");
  result->tool_use = std::move(tool_use);
  result->tool_use_name = where + " \"tool_use\"";
  return result;
}

std::optional<sources> from_text_file(const fs::path& folder) {
  const auto file = folder / "chat_template.jinja", tools = folder / "additional_chat_templates" / "tool_use.jinja";
  if (!is_there(file))
    return std::nullopt;
  sources result{read_file(file, files::chat_template), file.string(), std::nullopt, tools.string()};
  if (is_there(tools))
    result.tool_use = read_file(tools, files::chat_template);
  return result;
}

/// Adds the special tokens of one file: strings, or objects with a string `content`.
void add_tokens(jinja::dict& tokens, const fs::path& file) {
  if (!is_there(file))
    return;
  const auto document = json::document::load(file);
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto found = json::find(document.root(), key);
    if (!found || tokens.find(std::string_view(key)))
      continue;
    tokens.set(key,
               jinja::value(found->is_object() ? member_string(*found, "content", file.string())
                                               : member_string(document.root(), key, file.string())));
  }
}

/// A text as a list of parts.
jinja::value parts_of(const jinja::value& text) {
  jinja::dict part;
  part.set("type", "text");
  part.set("text", text);
  return jinja::value::list({jinja::value(std::move(part))});
}

/// Messages with lists of parts instead of texts.
jinja::value in_parts(const jinja::value& messages) {
  if (!messages.is(jinja::kind::sequence))
    return messages;
  auto items = messages.seq().items;
  for (auto& item : items) {
    const auto* content = item.is(jinja::kind::dict) ? item.map().find(std::string_view("content")) : nullptr;
    if (!content || !content->is_string())
      continue;
    auto message = item.map();
    message.set("content", parts_of(*content));
    item = jinja::value(std::move(message));
  }
  return jinja::value::list(std::move(items));
}

std::optional<sources> find_sources(const fs::path& folder) {
  auto found = from_text_file(folder);
  for (const char* name : {"chat_template.json", "tokenizer_config.json"})
    if (!found)
      found = from_json_file(folder / name);
  return found;
}

} // namespace

std::optional<chat_template::template_sources> chat_template::source(const fs::path& folder) {
  auto found = find_sources(folder);
  if (!found)
    return std::nullopt;
  return template_sources{std::move(found->standard), std::move(found->tool_use)};
}

std::optional<chat_template> chat_template::load(const fs::path& folder, const std::string& instead) {
  const auto found = instead.empty()
    ? find_sources(folder)
    : std::optional(sources{read_file(instead, files::chat_template), instead, std::nullopt, {}});
  if (!found)
    return std::nullopt;
  chat_template result(parse_named(found->standard, found->standard_name), found->standard);
  if (found->tool_use) {
    result.tool_use_ = parse_named(*found->tool_use, found->tool_use_name);
    result.text_ += '\n' + *found->tool_use;
  }
  add_tokens(result.special_tokens_, folder / "tokenizer_config.json");
  add_tokens(result.special_tokens_, folder / "special_tokens_map.json");
  result.parts_only_ = result.shows_parts_only();
  return result;
}

chat_template chat_template::parse(std::string_view source, std::optional<std::string_view> tool_use,
                                   jinja::dict special_tokens) {
  chat_template result(parse_bounded(source), std::string(source));
  if (tool_use) {
    result.tool_use_ = parse_named(*tool_use, "that for tools");
    (result.text_ += '\n') += *tool_use;
  }
  result.special_tokens_ = std::move(special_tokens);
  result.parts_only_ = result.shows_parts_only();
  return result;
}

chat_template chat_template::parse(std::string_view source, std::string bos_token, std::string eos_token) {
  jinja::dict tokens;
  tokens.set("bos_token", jinja::value(std::move(bos_token)));
  tokens.set("eos_token", jinja::value(std::move(eos_token)));
  return parse(source, std::nullopt, std::move(tokens));
}

std::string chat_template::render(const arguments& args) const {
  const bool with_tools = tool_use_ && !args.tools.is_none();
  try {
    return (with_tools ? *tool_use_ : default_).render(jinja::value(names(args)), {.stop = args.stop}, args.now);
  } catch (const failure& f) {
    throw failure(f.what_failed().code, f.what(), "messages");
  } catch (const jinja::fault& f) {
    throw failure(errc::bad_request, f.what(), "messages");
  }
}

std::string chat_template::render_probe(const std::vector<std::pair<std::string_view, jinja::value>>& messages) const {
  std::vector<jinja::value> list;
  for (const auto& [role, content] : messages) {
    jinja::dict message;
    message.set("role", jinja::value(std::string(role)));
    message.set("content", content);
    list.emplace_back(std::move(message));
  }
  try {
    const auto all = names({.messages = jinja::value::list(std::move(list)), .add_generation_prompt = false});
    return default_.render(jinja::value(all), {.steps = std::size_t{1} << 22, .bytes = std::size_t{1} << 22});
  } catch (const failure&) {
    return {};
  } catch (const jinja::fault&) {
    return {};
  }
}

namespace {

constexpr std::string_view probe = "7391502846"; // which no change of case alters

} // namespace

bool chat_template::shows_parts_only() const {
  const auto shows = [&](const jinja::value& content) {
    return render_probe({{"user", content}}).find(probe) != std::string::npos;
  };
  return !shows(probe) && shows(parts_of(probe));
}

std::string chat_template::behind_answer() const {
  const auto text = render_probe({{"user", "?"}, {"assistant", probe}});
  const auto at = text.rfind(probe);
  return at == text.npos ? std::string() : text.substr(at + probe.size());
}

jinja::dict chat_template::names(const arguments& args) const {
  jinja::dict result = special_tokens_;
  if (args.extra.is(jinja::kind::dict))
    for (const auto& [key, item] : args.extra.map().entries())
      if (key.is_string())
        result.set(key.str(), item);
  result.set("messages", parts_only_ ? in_parts(args.messages) : args.messages);
  result.set("tools", args.tools);
  if (!result.find(std::string_view("documents")))
    result.set("documents", nullptr);
  result.set("add_generation_prompt", args.add_generation_prompt);
  return result;
}

} // namespace troupe
