#include "api/cli/sampling_options.hpp"

#include "api/cli/common_options.hpp"
#include "api/cli/technique_options.hpp"
#include "api/cli/values.hpp"
#include "runtime/model/default_sampling.hpp"
#include "runtime/sampling/random_seed.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

namespace troupe::cli {

namespace {

std::string flag_of(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::ranges::replace(flag, '_', '-');
  return name == "temperature" ? flag + ",--temp" : flag;
}

/// The range check and its name in the help text.
template <class T>
void limit(CLI::Option& option, const sampling_field<T>& field) {
  if constexpr (std::is_integral_v<T>)
    option.check(integer_between(field.least, field.most))->type_name("INT");
  else
    option.check(number_between(field.least, field.most))->type_name("NUMBER");
}

template <class T>
void add_field(CLI::App& command, sampling_options& options, const sampling_field<T>& field) {
  const auto set = [&options, &field](const T& value) {
    options.values.*field.member = value;
    options.given.insert(field.name);
  };
  std::ostringstream fallback;
  if (field.sources.checkpoint)
    fallback << "model";
  else if (options.values.*field.member == static_cast<T>(sampling_fields::most_int))
    fallback << "as many as fit";
  else
    fallback << options.values.*field.member;
  auto* option = command.add_option_function<T>(flag_of(field.name), set,
                                                std::string(field.help) + " [" + fallback.str() + "]");
  limit(*option, field);
  option->group(sampling_group);
}

/// "TEXT=NUMBER" or "ID=NUMBER".
std::pair<std::string, float> parse_bias(const std::string& entry) {
  const auto sign = entry.rfind('=');
  auto key = entry.substr(0, sign);
  float bias = 0;
  const char* end = entry.data() + entry.size();
  const char* begin = sign == entry.npos ? end : entry.data() + sign + 1;
  if (key.empty() || begin == end || std::from_chars(begin, end, bias).ptr != end)
    throw failure(errc::bad_request, "--logit-bias must be TEXT=NUMBER or ID=NUMBER, not " + visible_name(entry));
  return {std::move(key), bias};
}

void add_bias(const std::string& entry, const encode_text& encode, std::vector<logit_bias_map::entry>& of_ids,
              std::vector<sequence_bias>& of_texts) {
  const auto [key, bias] = parse_bias(entry);
  if (key.find_first_not_of("0123456789") == key.npos)
    of_ids.emplace_back(static_cast<token_id>(parse_integer(key, 0, sampling_fields::most_int)), bias);
  else
    of_texts.push_back({encode(key), bias});
}

/// The flags that name texts, tokens or steps.
void add_text_options(CLI::App& command, sampling_options& options) {
  const auto texts = [&](const char* flag, auto& to, const char* type, const char* help) {
    command.add_option(flag, to, help)->take_all()->allow_extra_args(false)->type_name(type)->group(sampling_group);
  };
  texts("--bad-word", options.bad_words, "TEXT", "A word that answers must not contain; may be given several times");
  texts("--logit-bias", options.biases, "TEXT=NUMBER",
        "Add NUMBER to the score of a token id or a text; may be given several times");
  texts(
    "--dry-sequence-breaker", options.dry_breakers, "TEXT",
    "With --dry-multiplier: text at which a repetition ends; may be given several times [line break, colon, quote, *]");
  command
    .add_option_function<std::vector<std::string>>(
      "--samplers",
      [&options](const std::vector<std::string>& names) { options.values.samplers = sampler_order(names); },
      "The sampling steps to use, in this order, separated by commas; the others are off")
    ->delimiter(',')
    ->take_all()
    ->allow_extra_args(false)
    ->type_name("NAMES")
    ->group(sampling_group);
  command
    .add_option_function<std::string>(
      "--allowed-token-ids",
      [&options](const std::string& text) {
        std::vector<token_id> ids;
        for (const auto id : parse_integers(text, 0, sampling_fields::most_int))
          ids.push_back(static_cast<token_id>(id));
        options.values.allowed_token_ids = token_set(std::move(ids), "allowed_token_ids",
                                                     sampling_fields::most_allowed_ids);
      },
      "Choose only among these token ids, separated by commas")
    ->type_name("IDS")
    ->group(sampling_group);
}

void add_rank_option(CLI::App& command, sampling_options& options) {
  auto& values = options.values;
  command
    .add_option_function<std::string>(
      "--best-of-rank", [&values](const std::string& text) { values.rank = parse_best_of_rank(text); },
      "With --best-of: rank by the sum (cumulative) or the mean of log-probabilities [cumulative]")
    ->check(one_of({"cumulative", "mean"}))
    ->type_name("RANK")
    ->group(sampling_group);
}

} // namespace

void sampling_options::check() const {
  uses_of(techniques);
  for (const auto& entry : biases)
    parse_bias(entry);
}

sampling_params sampling_options::over(const generation_defaults& model, int n) const {
  const auto defaults = default_sampling(model, sampling_convention::local);
  auto params = values;
  params.n = n;
  params.techniques = uses_of(techniques);
  sampling_fields::for_each([&](const auto& field) {
    if (field.sources.checkpoint && !given.contains(field.name))
      params.*field.member = defaults.*field.member;
  });
  params.seed = seed ? *seed : random_seed();
  params.stop = stop;
  params.settle([&](std::string_view field) { return given.contains(field); });
  params.check_best_of();
  params.check_samplers();
  params.check_techniques();
  return params;
}

std::string sampling_options::told(const sampling_params& used, const generation_defaults& model) const {
  if (used.greedy())
    return "the likeliest token, as the temperature is 0";
  std::string own, others;
  for (const auto& [name, value] : named_sampling(used)) {
    auto& to = given.contains(name) ? own : others;
    to += (to.empty() ? "" : ", ") + name + ' ' + value;
  }
  if (!own.empty())
    own += " as given";
  // Where a technique searches with so many sequences, the checkpoint's values do not apply.
  if (const auto together = used.group(); !others.empty() && !(together && !together->counted_by.empty()))
    others += " (" + source_of_sampling(model) + ')';
  return own + (own.empty() || others.empty() ? "" : "; ") + others;
}

void sampling_options::add_texts(sampling_params& params, const encode_text& encode) const {
  if (!encode) {
    if (!bad_words.empty() || dry_breakers || !biases.empty())
      throw failure(errc::bad_request,
                    "--bad-word, --logit-bias and --dry-sequence-breaker need a model with a tokenizer");
    return;
  }
  auto sequences = forbid_words(bad_words, encode);
  std::vector<logit_bias_map::entry> of_ids;
  for (const auto& entry : biases)
    add_bias(entry, encode, of_ids, sequences);
  params.logit_bias = std::move(of_ids);
  params.sequence_biases = sequence_bias_list(std::move(sequences));
  if (dry_breakers)
    params.dry_breakers = token_set(breaker_tokens(*dry_breakers, encode), "dry_sequence_breakers",
                                    2 * sampling_fields::most_breakers);
  else if (params.dry_multiplier > 0)
    params.dry_breakers = usual_breakers(encode);
}

int sampling_options::max_sequences(int limit, int n) const {
  const auto request = over({}, n);
  return request.grouped() ? request.width() : std::min(limit, request.width());
}

encode_text text_encoder(const model_info& model) {
  if (!model.tokenizer)
    return {};
  return [tokens = model.tokenizer](std::string_view text) { return tokens->encode(text, false); };
}

void add_sampling_options(CLI::App& command, sampling_options& options) {
  using namespace sampling_fields;
  for_each([&](const auto& field) {
    if (field.sources.command_line)
      add_field(command, options, field);
  });
  add_technique_options(command, options.techniques, technique_option::setting, sampling_group);
  command
    .add_option("--thinking-budget,--thinking-token-budget", options.values.thinking_budget,
                "Tokens of reasoning at most; then it is closed, and the answer begins [no bound]")
    ->check(integer_between(0, most_int))
    ->type_name("INT")
    ->group(sampling_group);
  add_rank_option(command, options);
  add_text_options(command, options);
  add_technique_options(command, options.techniques, technique_option::run, sampling_group);
  command.add_option("--seed", options.seed, "The same seed gives the same text [random]")
    ->check(integer_between(0, std::numeric_limits<std::int64_t>::max()))
    ->type_name("INT")
    ->group(sampling_group);
  command
    .add_option("--stop", options.stop,
                "Stop before this text; may be given up to " + std::to_string(most_stops) + " times, " +
                  std::to_string(most_stop_bytes) + " bytes in all")
    ->take_all()
    ->allow_extra_args(false)
    ->type_name("TEXT")
    ->group(sampling_group);
  command.add_flag("--ignore-eos", options.values.ignore_eos, "Do not stop where the model would end")
    ->group(sampling_group);
}

} // namespace troupe::cli
