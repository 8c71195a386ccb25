#include "api/ollama/ollama_request.hpp"

#include "api/openai/chat_messages.hpp"
#include "api/openai/fields/known_fields.hpp"
#include "api/openai/translated_request.hpp"
#include "api/service/service.hpp"
#include "runtime/engine/checked_generation.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/json/json_brief.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/json/whole_number.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace troupe {

namespace {

constexpr std::string_view latest = ":latest"; // the tag of names without one

/// What becomes of an option.
enum class option_use : std::uint8_t {
  sampling, // a field of chats, perhaps under another name
  here,     // read by this parser
  none,     // it decides on memory or speed only, and this server decides that itself
};

struct known_option {
  std::string_view name;
  option_use use;
  std::string_view translated = {};
};

constexpr auto known_options = std::to_array<known_option>({
  {"temperature", option_use::sampling, "temperature"},
  {"top_k", option_use::sampling, "top_k"},
  {"top_p", option_use::sampling, "top_p"},
  {"min_p", option_use::sampling, "min_p"},
  {"typical_p", option_use::sampling, "typical_p"},
  {"repeat_penalty", option_use::sampling, "repetition_penalty"},
  {"presence_penalty", option_use::sampling, "presence_penalty"},
  {"frequency_penalty", option_use::sampling, "frequency_penalty"},
  {"mirostat", option_use::sampling, "mirostat"},
  {"mirostat_tau", option_use::sampling, "mirostat_tau"},
  {"mirostat_eta", option_use::sampling, "mirostat_eta"},
  {"stop", option_use::sampling, "stop"},
  {"seed", option_use::here},
  {"num_predict", option_use::here},
  {"num_ctx", option_use::here},
  {"repeat_last_n", option_use::sampling, "repeat_last_n"},
  {"penalize_newline", option_use::here},
  {"tfs_z", option_use::here},
  {"num_keep", option_use::none},
  {"num_batch", option_use::none},
  {"num_gpu", option_use::none},
  {"main_gpu", option_use::none},
  {"num_thread", option_use::none},
  {"low_vram", option_use::none},
  {"vocab_only", option_use::none},
  {"use_mmap", option_use::none},
  {"use_mlock", option_use::none},
  {"f16_kv", option_use::none},
  {"numa", option_use::none},
});

constexpr auto names = std::to_array<field_name>({
  {"temperature", "options.temperature"},
  {"top_k", "options.top_k"},
  {"top_p", "options.top_p"},
  {"min_p", "options.min_p"},
  {"typical_p", "options.typical_p"},
  {"repetition_penalty", "options.repeat_penalty"},
  {"presence_penalty", "options.presence_penalty"},
  {"frequency_penalty", "options.frequency_penalty"},
  {"repeat_last_n", "options.repeat_last_n"},
  {"mirostat", "options.mirostat"},
  {"stop", "options.stop"},
  {"seed", "options.seed"},
  {"response_format.json_schema.schema", "format"},
  {"response_format", "format"},
  {"chat_template_kwargs", "think"},
  {"reasoning_effort", "think"},
  {"messages", "prompt"}, // of /api/generate alone
});

std::span<const field_name> names_of(ollama_call call) {
  return std::span(names).first(names.size() - (call == ollama_call::chat ? 1 : 0));
}

[[noreturn]] void refuse_unsupported_field(const std::string& path, const std::string& why = {}) {
  throw failure(errc::unsupported, "`" + path + "` is not supported" + (why.empty() ? "" : ": " + why), path);
}

bool is_empty(json::value v) {
  return (v.is_string() && std::string_view(v).empty()) || (v.is_array() && json::array(v).size() == 0);
}

void refuse_unless_empty(const field_reader& body, std::string_view key, const std::string& why) {
  if (const auto found = body.find(key); found && !is_empty(*found))
    refuse_unsupported_field(body.path(key), why);
}

const known_option* find_option(std::string_view name) {
  const auto found = std::ranges::find(known_options, name, &known_option::name);
  return found == known_options.end() ? nullptr : &*found;
}

std::span<const std::string_view> option_names() {
  static const auto all = [] {
    std::vector<std::string_view> result;
    for (const auto& known : known_options)
      result.push_back(known.name);
    return result;
  }();
  return all;
}

constexpr auto shared_fields = std::to_array<std::string_view>({"model", "name", "stream", "keep_alive", "options",
                                                                "format", "think", "logprobs", "top_logprobs",
                                                                "truncate", "shift"});
constexpr auto chat_fields = std::to_array<std::string_view>({"messages", "tools"});
constexpr auto generate_fields = std::to_array<std::string_view>(
  {"prompt", "suffix", "system", "template", "context", "raw", "images"});

/// A note on each field that nothing reads.
std::vector<std::string> notes_on(ollama_call call, const field_reader& body, unknown_fields how) {
  std::vector<std::string_view> known(shared_fields.begin(), shared_fields.end());
  const auto own = call == ollama_call::chat ? std::span<const std::string_view>(chat_fields) : generate_fields;
  known.insert(known.end(), own.begin(), own.end());
  return notes_on_members(body, how, known);
}

/// Why an option that is known has no effect with this value, if so. Throws failure if the value is of another kind.
std::string why_without_effect(const field_reader& options, std::string_view name, const served_model& model) {
  if (name == "num_ctx") {
    const auto context = options.integer(name, 0, sampling_fields::most_int);
    if (context && *context > model.max_context)
      return "is " + std::to_string(*context) + "; the context of this server is " + std::to_string(model.max_context);
  }
  if (name == "penalize_newline" && !options.boolean(name).value_or(true))
    return "is not supported: penalties are over all tokens";
  if (name == "tfs_z")
    if (const auto z = options.number(name, {0, 1e9}); z && *z != 1)
      return "is not supported";
  if (name == "mirostat")
    if (const auto version = options.integer(name, 0, 2); version && *version == 1)
      return "1 is not supported: 2 is";
  return {};
}

/// Calls `use` with each option that is not null and has an effect; the others are told in `notes`, as Ollama does in
/// its log.
template <class Use>
void for_each_option(const field_reader& options, const served_model& model, std::vector<std::string>& notes, Use use) {
  const auto add_note = [&](std::string note) {
    if (notes.size() < most_notes)
      notes.push_back(std::move(note));
  };
  for (auto [key, value] : json::object(options.body())) {
    const std::string_view name = key;
    if (const auto* known = find_option(name); !known)
      note_unknown(model.unknown, options, name, option_names(), notes);
    else if (const auto why = why_without_effect(options, name, model); !why.empty())
      add_note('`' + options.path(name) + "` " + why);
    else if (!value.is_null())
      use(*known, value);
  }
}

/// Adds the sampling options under the names of chats.
void add_options(json_object& to, const field_reader& body, const served_model& model,
                 std::vector<std::string>& notes) {
  const auto options = body.object("options");
  if (!options)
    return;
  for_each_option(*options, model, notes, [&](const known_option& known, json::value value) {
    if (known.use == option_use::sampling)
      to.value(known.translated, value);
    else if (known.name == "seed" && json::whole_number(value) != -1) // -1: any
      to.value("seed", value);
  });
}

/// The most tokens to be generated.
int token_limit(const field_reader& body) {
  const auto options = body.object("options");
  const auto limit = options ? options->integer("num_predict", -2, sampling_fields::most_int) : std::nullopt;
  return limit && *limit > 0 ? static_cast<int>(*limit) : static_cast<int>(sampling_fields::most_int);
}

void add_format(json_object& to, const field_reader& body) {
  const auto format = body.find("format");
  if (!format)
    return;
  std::string_view word;
  if (format->is_object()) {
    to.raw(
      "response_format",
      json_object()
        .text("type", "json_schema")
        .raw("json_schema", json_object().text("name", "format").value("schema", *format).flag("strict", true).str())
        .str());
  } else if (format->get(word)) {
    body.refuse("format", "\"json\" or a JSON Schema", *format);
  } else if (word == "json") {
    to.raw("response_format", R"({"type":"json_object"})");
  } else if (!word.empty()) {
    body.refuse("format", "must be \"json\" or a JSON Schema, not \"" + std::string(word) + '"');
  }
}

/// Templates spell it differently: Qwen, GLM and SmolLM have `enable_thinking`, DeepSeek `thinking`.
void add_thinking(json_object& to, const field_reader& body) {
  const auto think = body.find("think");
  if (!think)
    return;
  bool wanted = true;
  std::string_view effort;
  if (!think->get(effort)) {
    if (effort != "low" && effort != "medium" && effort != "high")
      body.refuse("think", "must be true, false, \"low\", \"medium\" or \"high\", not \"" + std::string(effort) + '"');
    to.text("reasoning_effort", effort);
  } else if (think->get(wanted)) {
    body.refuse("think", "true, false, \"low\", \"medium\" or \"high\"", *think);
  }
  to.raw("chat_template_kwargs", json_object().flag("enable_thinking", wanted).flag("thinking", wanted).str());
}

/// `logprobs` is a boolean, and `top_logprobs` a number, as in chats.
void add_logprobs(json_object& to, const field_reader& body, dialect speaks) {
  const auto wanted = body.boolean("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, sampling_fields::most_logprobs);
  if (!wanted)
    return;
  if (speaks == dialect::completions) {
    to.number("logprobs", top.value_or(0));
    return;
  }
  to.flag("logprobs", true);
  to.number("top_logprobs", top.value_or(0));
}

/// A message with what Ollama calls otherwise under the names of chats.
std::string message_of(const field_reader& body, json::value given, std::size_t number) {
  if (!given.is_object())
    return simdjson::minify(given); // which the parser of chats refuses
  const field_reader message(given, body.path("messages[" + std::to_string(number) + ']'));
  refuse_unless_empty(message, "images", "this model reads text only");
  json_object result;
  for (auto [key, value] : json::object(given)) {
    if (key == "images")
      continue;
    if (key != "content" || !value.is_null())
      result.value(key == "thinking"      ? "reasoning_content"
                     : key == "tool_name" ? "name"
                                          : std::string_view(key),
                   value);
  }
  if (!message.has("content"))
    result.text("content", "");
  return result.str();
}

std::string chat_messages_of(const field_reader& body, json::array given) {
  std::vector<std::string> messages;
  for (auto item : given)
    messages.push_back(message_of(body, item, messages.size()));
  return json_list(messages);
}

std::string generate_messages_of(const field_reader& body, std::string_view prompt) {
  std::vector<std::string> messages;
  if (const auto system = body.text("system"); system && !system->empty())
    messages.push_back(json_object().text("role", "system").text("content", *system).str());
  messages.push_back(json_object().text("role", "user").text("content", prompt).str());
  return json_list(messages);
}

/// Sets the prompt's limit to what the client allows and the context has room for.
void fit(generation& one, int limit, const served_model& model, std::string_view field) {
  check_prompt_length(one.prompt.size(), model.max_context, field);
  one.sampling.max_tokens = std::min(limit, model.max_context - static_cast<int>(one.prompt.size()));
}

void refuse_of_generate(const field_reader& body, const served_model& model, bool raw, bool templated) {
  refuse_unless_empty(body, "images", "this model reads text only");
  if (!model.infill)
    refuse_unless_empty(body, "suffix", "this model does not support insert"); // Ollama's sentence
  refuse_unless_empty(body, "template", "the model's own is used, or none with `raw`");
  const auto system = body.find("system");
  if (raw && (body.has("context") || body.has("think") || (system && !is_empty(*system))))
    body.refuse("raw", "takes the prompt as it is: without `system`, `context` and `think`");
  if (!raw && !templated && system && !is_empty(*system))
    body.refuse("system", "needs a chat template, and this model has none");
}

} // namespace

std::string listed_name(const served_model& model) {
  const auto name = model.id.substr(model.id.rfind('/') + 1); // an owner may precede it
  return name.find(':') == name.npos ? model.id + std::string(latest) : model.id;
}

std::string ollama_model_name(const field_reader& body, const served_model& model) {
  auto name = body.text("model");
  if (!name || name->empty())
    name = body.text("name");
  if (!name || name->empty())
    throw failure(errc::bad_request, "model is required", "model"); // Ollama's sentence
  if (!is_name_of(model, *name))
    throw failure(errc::not_found, "model '" + std::string(*name) + "' not found; this server has '" + model.id + "'",
                  "model");
  return std::string(*name);
}

namespace {

/// Longer ones are as good as for ever.
constexpr double most_keep_seconds = 1e9;

/// The seconds of "1h30m", "-1", "300ms"; nothing if it is not written so.
std::optional<double> seconds_of(std::string_view text) {
  constexpr auto units = std::to_array<std::pair<std::string_view, double>>(
    {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}});
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+'))
    text.remove_prefix(1);
  if (text.empty())
    return std::nullopt;
  double sum = 0;
  for (bool first = true; !text.empty(); first = false) {
    const auto digits = text.substr(0, text.find_first_not_of("0123456789."));
    const auto number = to_real(std::string(digits));
    if (!number)
      return std::nullopt;
    text.remove_prefix(digits.size());
    const auto name = text.substr(0, text.find_first_of("0123456789."));
    const auto unit = std::ranges::find(units, name, &std::pair<std::string_view, double>::first);
    if (unit == units.end() && !(name.empty() && first)) // a number alone are seconds
      return std::nullopt;
    sum += *number * (unit == units.end() ? 1 : unit->second);
    text.remove_prefix(name.size());
  }
  return negative ? -sum : sum;
}

} // namespace

std::optional<std::chrono::milliseconds> read_keep_alive(const field_reader& body) {
  const auto found = body.find("keep_alive");
  if (!found)
    return std::nullopt;
  std::optional<double> seconds;
  if (found->is_string())
    seconds = seconds_of(std::string_view(*found));
  else if (double number = 0; found->is_number() && found->get(number) == simdjson::SUCCESS)
    seconds = number;
  if (!seconds)
    body.refuse("keep_alive", "must be a duration, such as \"5m\", or a number of seconds, not " + json_brief(*found));
  if (*seconds < 0)
    return std::chrono::milliseconds(-1);
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(*seconds, most_keep_seconds) * 1e3));
}

bool asks_to_unload(ollama_call call, const field_reader& body) {
  const auto asked = body.find(call == ollama_call::chat ? "messages" : "prompt");
  return (!asked || is_empty(*asked)) && read_keep_alive(body) == std::chrono::milliseconds(0);
}

std::vector<std::string> check_ollama_options(const field_reader& body, const served_model& model) {
  std::vector<std::string> notes;
  if (const auto options = body.object("options"))
    for_each_option(*options, model, notes, [](const known_option&, json::value) {});
  return notes;
}

ollama_request parse_ollama(ollama_call call, const field_reader& body, const served_model& model,
                            const std::stop_token& stop) {
  ollama_request result;
  result.call = call;
  result.model = ollama_model_name(body, model);
  result.stream = body.boolean("stream").value_or(true);
  result.keep_alive = read_keep_alive(body);
  result.unloads = model.leaves && asks_to_unload(call, body);
  for (const auto* key : {"truncate", "shift"})
    static_cast<void>(body.boolean(key)); // of a prompt that does not fit, which is refused
  result.notes = notes_on(call, body, model.unknown);
  if (!model.leaves && result.keep_alive == std::chrono::milliseconds(0))
    result.notes.emplace_back("`keep_alive` 0 has no effect: the model stays, as no request could load it again");
  const bool raw = call == ollama_call::generate && body.boolean("raw").value_or(false);
  const auto suffix = call == ollama_call::generate ? body.text("suffix").value_or("") : std::string_view();
  const bool templated = call == ollama_call::chat || (!raw && model.render && suffix.empty());
  const auto speaks = templated ? dialect::chat : dialect::completions;
  const auto limit = token_limit(body);

  json_object to;
  std::vector<token_id> context;
  if (call == ollama_call::chat) {
    const auto messages = body.list("messages", most_messages);
    if (!messages || messages->size() == 0) {
      std::ranges::move(check_ollama_options(body, model), std::back_inserter(result.notes));
      return result;
    }
    to.raw("messages", chat_messages_of(body, *messages));
    if (const auto tools = body.find("tools"))
      to.value("tools", *tools);
  } else {
    refuse_of_generate(body, model, raw, bool(model.render));
    const auto prompt = body.text("prompt").value_or("");
    context = body.ids("context", 0, model.vocab_size - 1, as_size(model.max_context)).value_or(context);
    if (prompt.empty()) {
      std::ranges::move(check_ollama_options(body, model), std::back_inserter(result.notes));
      return result;
    }
    if (templated)
      to.raw("messages", generate_messages_of(body, prompt));
    else
      to.text("prompt", prompt).flag("add_special_tokens", context.empty());
    if (!suffix.empty())
      to.text("suffix", suffix);
    result.tells_context = !raw && suffix.empty();
  }
  add_options(to, body, model, result.notes);
  add_format(to, body);
  add_thinking(to, body);
  add_logprobs(to, body, speaks);
  result.asked = parse_translated(speaks, to.str(), model, names_of(call), stop, sampling_convention::local);
  result.asked.stream = result.stream;
  auto& one = result.asked.prompts.front();
  one.prompt.insert(one.prompt.begin(), context.begin(), context.end());
  fit(one, limit, model, templated && call == ollama_call::chat ? "messages" : "prompt");
  return result;
}

} // namespace troupe
