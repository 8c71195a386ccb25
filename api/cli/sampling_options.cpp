#include "api/cli/sampling_options.hpp"

#include "api/cli/common_options.hpp"
#include "api/cli/values.hpp"
#include "runtime/sampling/beam_options.hpp"
#include "runtime/sampling/sampling_table.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <limits>
#include <random>
#include <sstream>
#include <string>

namespace troupe::cli {

namespace {

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::string flag_of(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::ranges::replace(flag, '_', '-');
  return flag;
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
  else
    fallback << options.values.*field.member;
  auto* option = command.add_option_function<T>(flag_of(field.name), set,
                                                std::string(field.help) + " [" + fallback.str() + "]");
  limit(*option, field);
  option->group(sampling_group);
}

/// The flags of beams and best_of that are no numbers.
void add_beam_options(CLI::App& command, sampling_options& options) {
  auto& values = options.values;
  command
    .add_flag("--use-beam-search", options.use_beam_search,
              "Search for the likeliest answers, with as many beams as there are answers unless --num-beams says it")
    ->group(sampling_group);
  command.add_flag("--stochastic-beams", values.stochastic_beams, "Beams are different samples, not the likeliest")
    ->group(sampling_group);
  command
    .add_option_function<std::string>(
      "--early-stopping", [&values](const std::string& text) { values.stopping = parse_early_stopping(text); },
      "End a beam search once there are enough answers (true), while running beams are no better (false), or when no "
      "better answer is possible (never) [false]")
    ->check(one_of({"true", "false", "never"}))
    ->type_name("WHEN")
    ->group(sampling_group);
  command
    .add_option_function<std::string>(
      "--best-of-rank", [&values](const std::string& text) { values.rank = parse_best_of_rank(text); },
      "With --best-of: rank by the sum or by the mean of log-probabilities [cumulative]")
    ->check(one_of({"cumulative", "mean"}))
    ->type_name("RANK")
    ->group(sampling_group);
}

} // namespace

sampling_params sampling_options::over(const sampling_params& defaults, int n) const {
  auto params = values;
  params.n = n;
  settle_beams(params, use_beam_search ? std::optional(true) : std::nullopt);
  sampling_fields::for_each([&](const auto& field) {
    // With beams, the checkpoint's temperature and filters do not apply.
    if (field.sources.checkpoint && !given.contains(field.name) && !params.grouped())
      params.*field.member = defaults.*field.member;
  });
  params.seed = seed ? *seed : random_seed();
  params.stop = stop;
  check_beams(params);
  return params;
}

int sampling_options::max_sequences(int limit, int n) const {
  const auto request = over({}, n);
  return request.grouped() ? request.width() : std::min(limit, request.width());
}

void add_sampling_options(CLI::App& command, sampling_options& options) {
  using namespace sampling_fields;
  for_each([&](const auto& field) {
    if (field.sources.command_line)
      add_field(command, options, field);
  });
  add_beam_options(command, options);
  command.add_option("--seed", options.seed, "The same seed gives the same text [another each time]")
    ->check(integer_between(0, std::numeric_limits<std::int64_t>::max()))
    ->type_name("INT")
    ->group(sampling_group);
  command
    .add_option("--stop", options.stop,
                "Stop ahead of this text; up to " + std::to_string(most_stops) + " times, " +
                  std::to_string(most_stop_bytes) + " bytes in all")
    ->take_all()
    ->allow_extra_args(false)
    ->type_name("TEXT")
    ->group(sampling_group);
  command.add_flag("--ignore-eos", options.values.ignore_eos, "Go on where the model would end")->group(sampling_group);
}

} // namespace troupe::cli
