#include "api/openai/fields/sampler_fields.hpp"

#include "runtime/sampling/processors/token_sequences.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/json/whole_number.hpp"

#include <charconv>
#include <utility>

namespace troupe {

namespace {

using namespace sampling_fields;

encode_text encoder(const field_reader& body, const char* key, const served_model& model) {
  if (!model.encode)
    body.refuse(key, "needs a tokenizer, and this model has none");
  return [&model, &body, key](std::string_view text) {
    if (text.size() > most_text_bytes)
      body.refuse(key, "may have texts of at most " + std::to_string(most_text_bytes) + " bytes");
    return model.encode(text, false);
  };
}

struct biases {
  std::vector<logit_bias_map::entry> of_ids;
  std::vector<sequence_bias> of_texts;
};

/// llama.cpp's form: [[id or text, bias], ...], where false forbids a token.
biases read_bias_list(const field_reader& body, json::array entries, const served_model& model) {
  biases result;
  check_entries(body, "logit_bias", entries.size(), most_biases);
  for (auto entry : entries) {
    json::array pair;
    double number = 0;
    std::string_view text;
    if (entry.get(pair) || pair.size() != 2)
      body.refuse("logit_bias", "must be an object, or a list of pairs of a token and its bias");
    const json::value what = pair.at(0).value(), of_it = pair.at(1).value();
    if (of_it.is_bool() && !bool(of_it))
      number = bias.least;
    else if (!of_it.is_number() || of_it.get(number))
      body.refuse("logit_bias", "must have a number or false as the bias of a token");
    if (!what.get(text))
      result.of_texts.push_back({encoder(body, "logit_bias", model)(text), static_cast<float>(number)});
    else if (const auto id = json::whole_number(what); id && *id >= 0 && *id < model.vocab_size)
      result.of_ids.emplace_back(static_cast<token_id>(*id), static_cast<float>(number));
    else
      body.refuse("logit_bias",
                  "must name tokens by ids from 0 to " + std::to_string(model.vocab_size - 1) + ", or by texts");
  }
  return result;
}

/// Keys that are decimal numbers are ids, as OpenAI has it; others are texts.
biases read_logit_bias(const field_reader& body, const served_model& model) {
  biases result;
  if (const auto given = body.find("logit_bias"); given && given->is_array())
    return read_bias_list(body, json::array(*given), model);
  const auto found = body.object("logit_bias");
  if (!found)
    return result;
  const auto entries = json::object(found->body());
  check_entries(body, "logit_bias", entries.size(), most_biases);
  for (auto [key, value] : entries) {
    const std::string_view text = key;
    double number = 0;
    if (!value.is_number() || value.get(number))
      body.refuse("logit_bias", "must map token ids or texts to numbers");
    const auto bias_of_it = static_cast<float>(number);
    const auto digits = text.substr(text.starts_with('-') ? 1 : 0);
    if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos) {
      result.of_texts.push_back({encoder(body, "logit_bias", model)(text), bias_of_it});
      continue;
    }
    token_id id = -1;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (ec != std::errc() || end != text.data() + text.size() || id < 0 || id >= model.vocab_size)
      body.refuse("logit_bias",
                  "must map token ids from 0 to " + std::to_string(model.vocab_size - 1) +
                    ", or texts, to numbers, \"" + std::string(text) + "\" is none");
    result.of_ids.emplace_back(id, bias_of_it);
  }
  return result;
}

} // namespace

void read_sampler_fields(const field_reader& body, const served_model& model, sampling_params& params) {
  if (const auto names = body.texts("samplers", sampler_steps + 2))
    params.samplers = sampler_order(*names);
  auto [of_ids, of_texts] = read_logit_bias(body, model);
  params.logit_bias = std::move(of_ids);
  auto sequences = sequence_bias_list(std::move(of_texts), "logit_bias");
  if (const auto words = body.texts("bad_words", most_sequence_biases); words && !words->empty()) {
    auto all = forbid_words(*words, encoder(body, "bad_words", model));
    sequence_bias_list checked(all, "bad_words");
    all.insert(all.end(), sequences.begin(), sequences.end());
    sequences = sequence_bias_list(std::move(all), "bad_words");
  }
  params.sequence_biases = std::move(sequences);
  if (auto ids = body.ids("allowed_token_ids", 0, model.vocab_size - 1, most_allowed_ids)) {
    if (ids->empty())
      body.refuse("allowed_token_ids", "must not be empty");
    params.allowed_token_ids = token_set(std::move(*ids), "allowed_token_ids", most_allowed_ids);
  }
  const auto breakers = body.texts("dry_sequence_breakers", most_breakers);
  if (breakers)
    params.dry_breakers = token_set(breaker_tokens(*breakers, encoder(body, "dry_sequence_breakers", model)),
                                    "dry_sequence_breakers", 2 * most_breakers);
  else if (params.dry_multiplier > 0 && model.encode)
    params.dry_breakers = usual_breakers(encoder(body, "dry_sequence_breakers", model));
}

} // namespace troupe
