#include "api/cli/sampling_options.hpp"

#include "api/cli/common_options.hpp"
#include "api/cli/values.hpp"
#include "api/engine_service.hpp"

#include <CLI/CLI.hpp>

#include <limits>
#include <random>

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
  constexpr int most_tokens = 1 << 28;
  const auto number = [&](const char* flag, std::optional<float>& value, double low, double high, const char* help) {
    command.add_option(flag, value, help)->check(number_between(low, high))->type_name("NUMBER")->group(sampling_group);
  };
  const auto integer = [&](const char* flag, auto& value, std::int64_t low, std::int64_t high, const char* help) {
    return command.add_option(flag, value, help)
      ->check(integer_between(low, high))
      ->type_name("INT")
      ->group(sampling_group);
  };
  number("--temperature", options.temperature, 0, 2, "0: always the likeliest token; 1: as the model has it [model]");
  integer("--top-k", options.top_k, -1, most_tokens, "Only among the k likeliest; 0 or -1: all [model]");
  number("--top-p", options.top_p, 0, 1, "Only among the likeliest that make up this probability; 1: all [model]");
  number("--min-p", options.min_p, 0, 1, "Only what is at least this fraction as likely as the likeliest [model]");
  number("--repetition-penalty", options.repetition_penalty, 0.01, 100,
         "Divides the scores of tokens that were there before; 1: off [model]");
  number("--presence-penalty", options.presence_penalty, -2, 2, "Taken off the score of tokens already generated [0]");
  number("--frequency-penalty", options.frequency_penalty, -2, 2, "The same for each time that they were [0]");
  integer("--seed", options.seed, 0, std::numeric_limits<std::int64_t>::max(),
          "The same seed gives the same text [another each time]");
  integer("--max-tokens", options.max_tokens, 1, most_tokens, "Stop after this many tokens")->capture_default_str();
  integer("--min-tokens", options.min_tokens, 0, most_tokens, "Do not let the model end before")->capture_default_str();
  command.add_option("--stop", options.stop, "Stop ahead of this text; may be given several times")
    ->take_all()
    ->allow_extra_args(false)
    ->type_name("TEXT")
    ->group(sampling_group);
  command.add_flag("--ignore-eos", options.ignore_eos, "Go on where the model would end")->group(sampling_group);
}

} // namespace troupe::cli
