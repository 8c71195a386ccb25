#include "api/openai/openai_request.hpp"

#include "api/http/request_scope.hpp"
#include "api/openai/chat_messages.hpp"
#include "api/openai/fields/known_fields.hpp"
#include "api/openai/fields/negative_prompt.hpp"
#include "api/openai/fields/output_fields.hpp"
#include "api/openai/fields/prediction.hpp"
#include "api/openai/fields/sampling_fields.hpp"
#include "api/openai/infill.hpp"
#include "api/service/service.hpp"
#include "runtime/engine/checked_generation.hpp"
#include "runtime/engine/context_length.hpp"
#include "runtime/engine/judged_prompt.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/techniques/model_variants.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace troupe {

namespace {

std::vector<token_id> encoded(const field_reader& body, const char* key, const served_model& model,
                              std::string_view text, bool special, std::span<const std::size_t> plain_at = {}) {
  if (!model.encode)
    body.refuse(key, "must be a list of token ids: this model has no tokenizer");
  return plain_at.empty() ? model.encode(text, special) : model.encode_around(text, special, plain_at);
}

/// The field that says how many sequences run at once.
std::string_view width_field(const sampling_params& sampling) {
  const auto together = sampling.group();
  return together ? together->width_field() : sampling.ranked() ? "best_of" : "n";
}

constexpr std::size_t most_salt_bytes = 1024;

const char* source_of(dialect speaks) { return speaks == dialect::chat ? "messages" : "prompt"; }

/// `answered`: something is generated.
void check_length(const char* source, std::size_t tokens, const served_model& model, bool answered) {
  check_prompt_length(tokens, model.max_context, source, answered);
}

/// Reads one text, one list of ids, a list of texts, or a list of lists of ids. Calls `add` for each prompt as soon as
/// it is read, so that the first one that is too long ends the request.
void read_prompts(const field_reader& body, const served_model& model, const sampling_params& shared,
                  const std::function<std::vector<token_id>(std::string_view)>& encode, const std::stop_token& stop,
                  const std::function<void(std::vector<token_id>)>& add) {
  constexpr auto wanted = "a string, a list of token ids, or a list of either";
  const auto found = body.find("prompt");
  if (!found)
    body.refuse("prompt", "is required");
  const auto add_ids = [&](json::array ids) {
    check_length("prompt", ids.size(), model, !shared.scores_only()); // before copying it
    add(read_ids(body, "prompt", ids, 0, model.vocab_size - 1));
  };
  std::string_view text;
  if (!found->get(text))
    return add(encode(text));
  json::array list;
  if (found->get(list))
    body.refuse("prompt", wanted, *found);
  if (list.size() == 0)
    body.refuse("prompt", "must not be empty");
  if (list.at(0).value().is_number())
    return add_ids(list);
  check_entries(body, "prompt", list.size(), most_choices);
  if (list.size() * as_size(shared.width()) > most_choices)
    body.refuse(width_field(shared), "times the number of prompts may be at most " + std::to_string(most_choices));
  for (auto item : list) {
    check(stop);
    json::array ids;
    if (!item.get(text))
      add(encode(text));
    else if (!item.get(ids))
      add_ids(ids);
    else
      body.refuse("prompt", wanted, item);
  }
}

/// The prompts that a technique gives in place of tokens; none: none does.
std::vector<given_prompt> read_given_prompts(const field_reader& body, const served_model& model, bool echo) {
  for (const auto* each : repertoire()) {
    auto given = each->read_prompts ? each->read_prompts(body, facts_of(model), most_choices)
                                    : std::vector<given_prompt>();
    if (given.empty())
      continue;
    const auto both = "and `" + std::string(each->name) + "` cannot both be given";
    if (const auto text = body.find("prompt"); text && !(text->is_string() && std::string_view(*text).empty()))
      body.refuse(each->name, "and `prompt` cannot both be given");
    if (body.has("suffix"))
      body.refuse("suffix", both);
    if (echo)
      body.refuse("echo", both);
    return given;
  }
  return {};
}

/// The tokens of a chat as its template rendered it.
std::vector<token_id> encoded_chat(const field_reader& body, const served_model& model, const whole_prompt& prompt) {
  const bool special = body.boolean("add_special_tokens").value_or(false);
  return encoded_prompt(body, "messages", model, prompt.text, special, prompt.plain_at);
}

/// The number of alternatives beside the chosen token, or -1 without log-probabilities.
int read_logprobs(dialect speaks, const field_reader& body) {
  if (speaks == dialect::completions)
    return static_cast<int>(body.integer("logprobs", 0, sampling_fields::most_logprobs).value_or(-1));
  const bool wanted = body.boolean("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, sampling_fields::most_logprobs);
  if (top && *top > 0 && !wanted)
    body.refuse("top_logprobs", "needs `logprobs` to be true");
  return wanted ? static_cast<int>(top.value_or(0)) : -1;
}

/// The limit of the request, and the field that sets it.
struct token_limit {
  std::optional<std::int64_t> tokens;
  const char* field = "max_tokens";
  bool all = false; // all there is room for
};

token_limit read_limit(dialect speaks, const field_reader& body) {
  token_limit result;
  const auto read = [&](const char* field) { // -1, of llama.cpp and LM Studio: all there is room for
    if (const auto tokens = body.integer(field, -1, sampling_fields::most_int))
      result = {*tokens >= 0 ? tokens : std::nullopt, field, *tokens < 0};
  };
  read("n_predict"); // llama.cpp's name
  read("max_tokens");
  if (speaks == dialect::chat)
    read("max_completion_tokens");
  return result;
}

/// Sets `max_tokens` so that the prompt and the output fit into the context.
void fit(sampling_params& sampling, dialect speaks, std::size_t prompt_tokens, const token_limit& limit,
         const served_model& model) {
  check_length(source_of(speaks), prompt_tokens, model, limit.tokens != 0);
  const auto context = static_cast<std::int64_t>(model.max_context);
  const auto used = static_cast<std::int64_t>(prompt_tokens);
  const auto room = context - used;
  if (limit.tokens && *limit.tokens > room)
    throw beyond_context(model.max_context,
                         "you requested " + std::to_string(used + *limit.tokens) + " tokens: " + std::to_string(used) +
                           " in `" + source_of(speaks) + "` and " + std::to_string(*limit.tokens) + " in `" +
                           limit.field + "`, which may be at most " + std::to_string(room),
                         limit.field);
  const auto fallback = speaks == dialect::chat || limit.all ? room : std::min<std::int64_t>(16, room);
  sampling.max_tokens = static_cast<int>(limit.tokens.value_or(fallback));
  if (sampling.min_tokens > sampling.max_tokens)
    throw failure(errc::bad_request,
                  "`min_tokens` must be at most " + std::to_string(sampling.max_tokens) + ", the most to be generated",
                  "min_tokens");
}

void read_stream(const field_reader& body, generation_request& result) {
  result.stream = body.boolean("stream").value_or(false);
  const auto options = body.object("stream_options");
  if (!options)
    return;
  if (!result.stream)
    body.refuse("stream_options", "needs `stream` to be true");
  result.include_usage = options->boolean("include_usage").value_or(false);
  // vLLM has this field: the usage so far in each event, if the stream ends with the usage.
  result.running_usage = options->boolean("continuous_usage_stats").value_or(false) && result.include_usage;
}

bool read_echo(dialect speaks, const field_reader& body, const served_model& model) {
  if (!body.boolean("echo").value_or(false))
    return false;
  if (speaks == dialect::chat)
    throw failure(errc::unsupported, "`echo` is not supported in chats", "echo");
  if (!model.decode)
    body.refuse("echo", "needs a tokenizer, and this model has none");
  return true;
}

/// What an answer tells about its prompts.
struct prompt_report {
  bool echo = false;
  int logprobs = -1; // as vLLM lists them
};

/// Sets `prompt_logprobs` to what the report needs, and `max_tokens` to 0 if there is to be nothing but the report.
prompt_report read_report(dialect speaks, const field_reader& body, const served_model& model, const token_limit& limit,
                          bool stream, sampling_params& sampling) {
  prompt_report result{read_echo(speaks, body, model)};
  result.logprobs = static_cast<int>(
    body.integer("prompt_logprobs", 0, sampling_fields::most_logprobs).value_or(result.logprobs));
  if (stream && result.logprobs >= 0)
    body.refuse("prompt_logprobs", "cannot be streamed; a completion with `echo` and `logprobs` can");
  sampling.prompt_logprobs = std::max(result.logprobs, result.echo ? sampling.logprobs : -1);
  if (limit.tokens != 0)
    return result;
  if (!result.echo && result.logprobs < 0)
    body.refuse(limit.field,
                std::string("must be at least 1, not 0, unless the prompt is scored by `prompt_logprobs`") +
                  (speaks == dialect::chat ? "" : " or `echo`"));
  if (sampling.grouped())
    body.refuse(width_field(sampling), "cannot be used, as nothing is generated");
  if (sampling.width() > 1)
    body.refuse(width_field(sampling),
                "must be 1, not " + std::to_string(sampling.width()) + ", as nothing is generated");
  sampling.max_tokens = 0;
  sampling.prompt_logprobs = std::max(sampling.prompt_logprobs, 0); // the engine answers with these alone
  return result;
}

/// Adds a prompt's scores to `total`, over all choices that list them. Throws failure if it gets too large.
void count_scores(dialect speaks, const prompt_report& report, const generation& one, std::size_t& total) {
  const auto entries = [&](int alternatives) { return one.prompt.size() * static_cast<std::size_t>(alternatives + 1); };
  const auto copies = speaks == dialect::chat ? 1 : static_cast<std::size_t>(one.sampling.n);
  const auto echoed = report.echo ? entries(one.sampling.logprobs) : 0;
  total += copies * (echoed + entries(report.logprobs));
  if (total > most_scores)
    throw failure(errc::bad_request,
                  std::string(report.logprobs >= 0 ? "`prompt_logprobs`" : "`logprobs`") +
                    " of all prompts may be at most " + std::to_string(most_scores) +
                    ": tokens, times 1 more than the alternatives, times `n`",
                  report.logprobs >= 0 ? "prompt_logprobs" : "logprobs");
}

/// Reads a time in seconds; 0: it is not given.
std::chrono::milliseconds read_time(const field_reader& body, std::string_view key) {
  const auto seconds = body.number(key, {0, 86'400, true});
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds.value_or(0) * 1000)));
}

/// The settings that all prompts of the request share.
generation read_shared(dialect speaks, const field_reader& body, const served_model& model, sampling_convention users) {
  generation result;
  result.model = model.id;
  result.sampling = read_sampling(body, model, default_sampling(model.defaults, users));
  result.sampling.logprobs = read_logprobs(speaks, body);
  result.sampling.max_tokens = sampling_fields::most_int; // until a prompt says what fits
  // In vLLM's API, lower values run sooner.
  result.priority = -static_cast<int>(body.integer("priority", -1'000'000, 1'000'000).value_or(0));
  result.skip_special_tokens = body.boolean("skip_special_tokens").value_or(true);
  result.cache_salt = read_cache_salt(body);
  result.timeout = read_time(body, "timeout");
  result.ttft_timeout = read_time(body, "ttft_timeout");
  if (result.sampling.techniques.constraint())
    result.shown_tokens = model.markers; // they are text to constraints
  if (!model.decode && !result.sampling.stop.empty())
    body.refuse("stop", "needs a tokenizer, and this model has none");
  return result;
}

} // namespace

namespace {

/// Before it is tokenised.
void check_bytes(const field_reader& body, const char* key, const served_model& model, std::string_view text) {
  const auto context = static_cast<std::size_t>(model.max_context);
  if (model.most_bytes_per_token > 0 && text.size() / model.most_bytes_per_token > context)
    throw beyond_context(model.max_context,
                         "`" + body.path(key) + "` is a text of " + std::to_string(text.size()) +
                           " bytes, which has more",
                         body.path(key));
}

} // namespace

std::vector<token_id> encoded_prompt(const field_reader& body, const char* key, const served_model& model,
                                     std::string_view text, bool special, std::span<const std::size_t> plain_at) {
  check_bytes(body, key, model, text);
  return encoded(body, key, model, text, special, plain_at);
}

std::vector<token_id> encoded_plain(const field_reader& body, const char* key, const served_model& model,
                                    std::string_view text) {
  check_bytes(body, key, model, text);
  return model.encode_plain(text);
}

namespace {

/// The variants of which `model` names one; null: it is the served model, or absent.
const model_variants* named_variants(const field_reader& body, const served_model& model) {
  const auto name = body.text("model");
  if (!name || is_name_of(model, *name))
    return nullptr;
  if (const auto* found = variants_with(model.techniques, std::string(*name)))
    return found;
  throw failure(errc::not_found,
                "the model `" + std::string(*name) + "` does not exist; this server has `" + model.id + "`", "model");
}

} // namespace

void check_model_name(const field_reader& body, const served_model& model) { named_variants(body, model); }

void require_model_itself(const field_reader& body, const served_model& model, const std::string& what) {
  if (const auto* variants = named_variants(body, model))
    throw failure(errc::unsupported,
                  what + " by the model itself, `" + model.id + "`, not by its " + std::string(variants->kind()),
                  "model");
}

std::string name_in_answers(const generation_request& request, const served_model& model) {
  for (const auto& use : request.prompts.front().sampling.techniques)
    if (const auto name = use->answers_as(); !name.empty())
      return to_utf8(name);
  return to_utf8(model.id);
}

std::string read_cache_salt(const field_reader& body) {
  const auto salt = body.text("cache_salt");
  if (salt && (salt->empty() || salt->size() > most_salt_bytes))
    body.refuse("cache_salt", "must have 1 to " + std::to_string(most_salt_bytes) + " bytes");
  return std::string(salt.value_or(""));
}

generation_request parse_generation(dialect speaks, const field_reader& body, const served_model& model,
                                    const std::stop_token& stop, std::span<const std::string_view> envelope,
                                    sampling_convention users) {
  check_model_name(body, model);
  refuse_unsupported(body);
  generation_request result;
  result.speaks = speaks;
  result.notes = notes_on_fields(body, model.unknown,
                                 speaks == dialect::chat ? field_scope::chat : field_scope::completions, envelope);
  auto shared = read_shared(speaks, body, model, users);
  const auto limit = read_limit(speaks, body);
  read_stream(body, result);
  if (result.stream && shared.sampling.ranked() && shared.sampling.n > 1)
    body.refuse("stream", "with beams or `best_of` is possible for one choice only: `n` must be 1");
  result.return_token_ids = body.boolean("return_token_ids").value_or(false);
  const auto report = read_report(speaks, body, model, limit, result.stream, shared.sampling);
  result.prompt_logprobs = report.logprobs;
  shared.prediction = read_prediction(body, model);
  shared.negative_prompt = read_negative_prompt(
    body, model, body.boolean("add_special_tokens").value_or(speaks == dialect::completions));
  std::size_t scores = 0;
  std::optional<chat_input> chat;
  std::optional<infilling> between;
  if (speaks == dialect::completions)
    between = read_suffix(body, model, report.echo);
  if (between)
    shared.sampling.stop_token_ids = with_ends(shared.sampling.stop_token_ids, *model.infill);

  const auto add = [&](std::vector<token_id> ids) {
    if (between)
      ids = between->prompt(model, ids);
    if (!result.prompts.empty() && !shared.prediction.empty())
      body.refuse("prediction", "may only be given with one prompt");
    auto& one = result.prompts.emplace_back(shared); // shares the lists of the sampling parameters
    fit(one.sampling, speaks, ids.size(), limit, model);
    if (report.echo)
      result.echoes.push_back(model.decode(ids, one.skip_special_tokens));
    if (one.sampling.judged())
      one.sampling.judged_behind = judged_prompt_of(model.decode(ids, true), chat ? &chat->messages : nullptr,
                                                    chat && chat->continue_final_message);
    one.prompt = std::move(ids);
    count_scores(speaks, report, one, scores);
  };
  if (speaks == dialect::completions)
    if (const auto given = read_given_prompts(body, model, report.echo); !given.empty()) {
      if (shared.sampling.judged())
        body.refuse("search",
                    "cannot have \"model\" as `value` behind `" + std::string(given.front().by->of().name) +
                      "`, which are no text to judge");
      for (const auto& one : given) {
        add(std::vector<token_id>(as_size(one.tokens), 0)); // which stand for nothing
        result.prompts.back().sampling.techniques.set(one.by);
      }
      return result;
    }
  if (speaks == dialect::completions) {
    const bool special = body.boolean("add_special_tokens").value_or(true);
    const auto encode = [&](std::string_view text) {
      return between ? encoded_plain(body, "prompt", model, text)
                     : encoded_prompt(body, "prompt", model, text, special);
    };
    read_prompts(body, model, shared.sampling, encode, stop, add);
    return result;
  }
  chat = read_chat(body);
  chat->stop = stop;
  shared.begins_text = !chat->continue_final_message;
  auto output = read_output(body, model);
  shared.sampling.thinking_budget = read_thinking_budget(body, chat->variables, model);
  const auto prompt = render_chat(model, *chat);
  result.notes.insert(result.notes.end(), prompt.notes.begin(), prompt.notes.end());
  result.output = follow_output(std::move(output), prompt.text, *chat, model, shared);
  add(encoded_chat(body, model, prompt));
  return result;
}

tokenized_prompt parse_tokenize(const field_reader& body, const served_model& model, const std::stop_token& stop) {
  check_model_name(body, model);
  if (body.has("messages")) {
    if (body.has("prompt"))
      body.refuse("messages", "and `prompt` cannot both be given");
    auto chat = read_chat(body);
    chat.stop = stop;
    auto prompt = render_chat(model, chat);
    return {encoded_chat(body, model, prompt), std::move(prompt.notes)};
  }
  const auto text = body.text("prompt");
  if (!text)
    body.refuse("prompt", "is required");
  return {encoded(body, "prompt", model, *text, body.boolean("add_special_tokens").value_or(true)), {}};
}

counted_prompt count_chat_tokens(const field_reader& body, const served_model& model, const std::stop_token& stop,
                                 std::size_t most) {
  check(stop);
  auto notes = notes_on_fields(body, model.unknown, field_scope::chat, {});
  auto chat = read_chat(body);
  chat.stop = stop;
  const auto prompt = render_chat(model, chat);
  notes.insert(notes.end(), prompt.notes.begin(), prompt.notes.end());
  if (model.most_bytes_per_token > 0 && prompt.text.size() / model.most_bytes_per_token > most)
    return {most + 1, std::move(notes)};
  const bool special = body.boolean("add_special_tokens").value_or(false);
  return {encoded(body, "messages", model, prompt.text, special, prompt.plain_at).size(), std::move(notes)};
}

std::string parse_detokenize(const field_reader& body, const served_model& model) {
  check_model_name(body, model);
  const auto ids = body.ids("tokens", 0, model.vocab_size - 1, most_detokenised);
  if (!ids)
    body.refuse("tokens", "is required");
  if (!model.decode)
    body.refuse("tokens", "cannot be turned into text: this model has no tokenizer");
  return model.decode(*ids, body.boolean("skip_special_tokens").value_or(false));
}

} // namespace troupe
