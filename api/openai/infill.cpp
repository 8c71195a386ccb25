#include "api/openai/infill.hpp"

#include "api/openai/answer_text.hpp"
#include "api/openai/answer_timings.hpp"
#include "api/openai/fields/known_fields.hpp"
#include "api/openai/openai_request.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/token_logprobs.hpp"
#include "api/openai/translated_request.hpp"
#include "runtime/engine/checked_generation.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_other_files = 1024;

/// Fields of /infill that are translated here, or have no influence.
constexpr auto infill_fields = std::to_array<std::string_view>({
  "input_prefix",
  "input_suffix",
  "input_extra",
  "prompt",
  "n_predict",
  "max_tokens",
  "samplers",
  "stream",
  "n_indent",
  "t_max_prompt_ms",
  "t_max_predict_ms",
  "response_fields",
  "cache_prompt",
  "id_slot",
});

constexpr auto infill_names = std::to_array<field_name>({{"max_tokens", "n_predict"}, {"prompt", "input_prefix"}});

[[noreturn]] void refuse_infill(const served_model& model, std::string_view field) {
  throw failure(errc::unsupported,
                '`' + std::string(field) +
                  "` needs a model that was taught to fill in the middle of a text; the "
                  "tokenizer of `" +
                  model.id + "` has no tokens for that",
                std::string(field));
}

std::vector<infill_context> read_other_files(const field_reader& body) {
  std::vector<infill_context> result;
  const auto list = body.list("input_extra", most_other_files);
  if (!list)
    return result;
  for (auto item : *list) {
    const auto key = "input_extra[" + std::to_string(result.size()) + ']';
    if (!item.is_object())
      body.refuse(key, "an object with `filename` and `text`", item);
    const field_reader one(item, body.path(key));
    const auto text = one.text("text");
    if (!text)
      one.refuse("text", "is required");
    result.push_back({std::string(one.text("filename").value_or("")), std::string(*text)});
  }
  return result;
}

/// llama.cpp's sampler of that name chooses among tokens with a common beginning; the others are as elsewhere.
std::string samplers_of(json::value given, std::vector<std::string>& notes) {
  json::array list;
  if (given.get(list))
    return json::minified(given); // which the parser refuses
  std::vector<std::string> names;
  for (auto item : list) {
    std::string_view name;
    if (!item.get(name) && name == "infill")
      notes.emplace_back("`samplers`: \"infill\" is not known here and has no effect");
    else
      names.push_back(json::minified(item));
  }
  return json_list(names);
}

struct infill_request {
  generation_request asked;
  std::vector<std::string> notes;
  bool warms = false; // n_predict is 0: only the prompt is of interest
};

infill_request parse_infill(const field_reader& body, const served_model& model, const std::stop_token& stop) {
  check_model_name(body, model);
  if (!model.infill)
    refuse_infill(model, "input_prefix");
  if (!body.has("input_prefix") || !body.has("input_suffix"))
    body.refuse(body.has("input_prefix") ? "input_suffix" : "input_prefix", "is required");
  const auto encoded = [&](const char* key) { return encoded_plain(body, key, model, body.text(key).value_or("")); };
  infill_request result;
  auto prefix = encoded("input_prefix");
  const auto behind = encoded("prompt"); // what was typed since
  prefix.insert(prefix.end(), behind.begin(), behind.end());
  const infilling between{encoded("input_suffix"), read_other_files(body)};
  const auto ids = between.prompt(model, prefix);
  check_prompt_length(ids.size(), model.max_context, "input_prefix");
  const auto room = static_cast<std::int64_t>(model.max_context) - static_cast<std::int64_t>(ids.size());
  auto limit = body.integer("n_predict", -1, sampling_fields::most_int);
  if (!limit)
    limit = body.integer("max_tokens", -1, sampling_fields::most_int);
  result.warms = limit == 0;
  json_object to;
  to.raw("prompt", json_ids(ids));
  to.number("max_tokens", limit && *limit >= 0 ? std::clamp<std::int64_t>(*limit, 1, room) : room);
  for (auto [key, value] : json::object(body.body()))
    if (std::ranges::find(infill_fields, std::string_view(key)) == infill_fields.end() && !value.is_null())
      to.value(key, value);
  if (const auto samplers = body.find("samplers"))
    to.raw("samplers", samplers_of(*samplers, result.notes));
  result.asked = parse_translated(dialect::completions, to.str(), model, infill_names, stop,
                                  sampling_convention::local);
  auto& sampling = result.asked.prompts.front().sampling;
  if (sampling.width() > 1)
    body.refuse("n", "must be 1");
  sampling.stop_token_ids = with_ends(sampling.stop_token_ids, *model.infill);
  result.asked.stream = body.boolean("stream").value_or(false);
  result.notes.insert(result.notes.end(), result.asked.notes.begin(), result.asked.notes.end());
  return result;
}

/// llama.cpp's answers of /completion.
class infill_answer final : public answer_writer {
public:
  infill_answer(const infill_request& request, std::shared_ptr<const served_model> model)
    : model_(std::move(model)),
      stream_(request.asked.stream),
      warms_(request.warms),
      prompt_(request.asked.prompts.front().prompt.size()),
      limit_(request.asked.prompts.front().sampling.max_tokens) {}

  void withhold(const output_filter& filter) override { text_.withhold(filter); }
  bool is_filtered(std::size_t) const override { return text_.filtered(); }

  std::string take(std::size_t, const token_event& e) override {
    if (warms_ || text_.filtered())
      return {};
    tokens_ += e.token_ids.size();
    const auto said = text_.feed(e);
    const auto text = said.empty() ? std::string() : said.front().text;
    if (!e.stop.empty() && !text_.filtered())
      stop_ = e.stop;
    if (!stream_)
      all_ += text;
    if (!stream_ || text.empty())
      return {};
    return sse(
      head(text).flag("stop", false).number("tokens_predicted", tokens_).number("tokens_evaluated", prompt_).str());
  }

  std::string take(std::size_t, const done_event& e) override {
    done_ = e;
    timings_.add(e);
    return {};
  }

  std::string end() override { return sse(last({})); }
  std::string fail(const error& why) override { return sse(error_body(why)); }
  std::string body() override { return last(all_); }

private:
  json_object head(std::string_view content) const {
    json_object result;
    result.number("index", 0).text("content", content).raw("tokens", "[]").number("id_slot", 0);
    return result;
  }

  std::string last(std::string_view content) const {
    const auto why = done_.choices.empty() ? finish_reason::stop : done_.choices.front().reason;
    const bool cut = why == finish_reason::length || why == finish_reason::timeout;
    return head(content)
      .flag("stop", true)
      .text("model", to_utf8(model_->id))
      .number("tokens_predicted", tokens_)
      .number("tokens_evaluated", prompt_)
      .number("tokens_cached", done_.cached_tokens)
      .flag("truncated", false)
      .text("stop_type",
            text_.filtered()  ? "none"
              : cut           ? "limit"
              : stop_.empty() ? "eos"
                              : "word")
      .text("stopping_word", to_utf8(stop_))
      .object("generation_settings", json_object().number("n_predict", limit_).number("n_ctx", model_->max_context))
      .object("timings", timings_.json(tokens_))
      .str();
  }

  std::shared_ptr<const served_model> model_;
  bool stream_, warms_;
  std::size_t prompt_, tokens_ = 0;
  int limit_;
  answer_text text_{nullptr}; // all is content
  std::string all_, stop_;
  done_event done_;
  answer_timings timings_;
};

} // namespace

std::vector<token_id> infilling::prompt(const served_model& model, std::span<const token_id> prefix) const {
  const auto begin = model.encode(std::string_view(), true);
  return infill_prompt(*model.infill, begin, prefix, suffix, others,
                       [&](std::string_view text) { return model.encode_plain(text); });
}

std::optional<infilling> read_suffix(const field_reader& body, const served_model& model, bool echo) {
  const auto text = body.text("suffix");
  if (!text || text->empty())
    return {};
  if (!model.infill || !model.encode_plain)
    refuse_infill(model, "suffix");
  if (echo)
    body.refuse("suffix", "and `echo` cannot both be given");
  return infilling{encoded_plain(body, "suffix", model, *text)};
}

stop_id_set with_ends(const stop_id_set& ids, const infill_tokens& tokens) {
  std::vector<token_id> all(ids.begin(), ids.end());
  for (const auto id : tokens.ends())
    all.push_back(id);
  return stop_id_set(std::move(all));
}

generation_job infill_job(const field_reader& body, std::shared_ptr<const served_model> model,
                          const std::stop_token& stop) {
  auto request = parse_infill(body, *model, stop);
  auto writer = std::make_unique<infill_answer>(request, std::move(model));
  return {std::move(request.asked.prompts), request.asked.stream, std::move(writer), std::move(request.notes)};
}

} // namespace troupe
