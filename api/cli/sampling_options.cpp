#include "api/cli/sampling_options.hpp"

#include "api/cli/common_options.hpp"
#include "api/cli/engine_service.hpp"
#include "api/cli/values.hpp"
#include "runtime/sampling/sampling_ranges.hpp"

#include <CLI/CLI.hpp>

#include <limits>
#include <random>
#include <string>

namespace troupe::cli {

namespace {

template <class T>
void assign(T& to, const std::optional<T>& given) {
  if (given)
    to = *given;
}

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

} // namespace

sampling_params sampling_options::over(const generation_defaults& defaults) const {
  auto params = default_sampling(defaults);
  assign(params.temperature, temperature);
  assign(params.top_k, top_k);
  assign(params.top_p, top_p);
  assign(params.min_p, min_p);
  assign(params.repetition_penalty, repetition_penalty);
  assign(params.presence_penalty, presence_penalty);
  assign(params.frequency_penalty, frequency_penalty);
  params.seed = seed ? *seed : random_seed();
  params.max_tokens = max_tokens;
  params.min_tokens = min_tokens;
  params.ignore_eos = ignore_eos;
  params.stop = stop;
  return params;
}

void add_sampling_options(CLI::App& command, sampling_options& options) {
  using namespace sampling_fields;
  const auto number = [&](const char* flag, std::optional<float>& value, const sampling_number& field,
                          const char* help) {
    command.add_option(flag, value, help)
      ->check(number_between(field.range.least, field.range.most))
      ->type_name("NUMBER")
      ->group(sampling_group);
  };
  const auto integer = [&](const char* flag, auto& value, std::int64_t low, std::int64_t high, const char* help) {
    return command.add_option(flag, value, help)
      ->check(integer_between(low, high))
      ->type_name("INT")
      ->group(sampling_group);
  };
  const auto field = [&](const char* flag, auto& value, const sampling_integer& of, const char* help) {
    return integer(flag, value, of.least, of.most, help);
  };
  number("--temperature", options.temperature, temperature,
         "0: always the likeliest token; 1: as the model has it [model]");
  field("--top-k", options.top_k, top_k, "Only among the k likeliest; 0 or -1: all [model]");
  number("--top-p", options.top_p, top_p, "Only among the likeliest that make up this probability; 1: all [model]");
  number("--min-p", options.min_p, min_p, "Only what is at least this fraction as likely as the likeliest [model]");
  number("--repetition-penalty", options.repetition_penalty, repetition_penalty,
         "Divides the scores of tokens that were there before; 1: off [model]");
  number("--presence-penalty", options.presence_penalty, presence_penalty,
         "Taken off the score of tokens already generated [0]");
  number("--frequency-penalty", options.frequency_penalty, frequency_penalty,
         "The same for each time that they were [0]");
  integer("--seed", options.seed, 0, std::numeric_limits<std::int64_t>::max(),
          "The same seed gives the same text [another each time]");
  field("--max-tokens", options.max_tokens, max_tokens, "Stop after this many tokens")->capture_default_str();
  field("--min-tokens", options.min_tokens, min_tokens, "Do not let the model end before")->capture_default_str();
  command
    .add_option("--stop", options.stop,
                "Stop ahead of this text; up to " + std::to_string(most_stops) + " times, " +
                  std::to_string(most_stop_bytes) + " bytes in all")
    ->take_all()
    ->allow_extra_args(false)
    ->type_name("TEXT")
    ->group(sampling_group);
  command.add_flag("--ignore-eos", options.ignore_eos, "Go on where the model would end")->group(sampling_group);
}

} // namespace troupe::cli
