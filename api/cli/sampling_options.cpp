#include "api/cli/sampling_options.hpp"

#include "api/cli/common_options.hpp"
#include "api/cli/values.hpp"
#include "runtime/sampling/sampling_table.hpp"

#include <CLI/CLI.hpp>

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

} // namespace

void add_speculate_option(CLI::App& command, speculation& source) {
  std::vector<std::string> names;
  for (const auto& [name, kind] : sampling_fields::speculations)
    names.emplace_back(name);
  const auto set = [&source](const std::string& given) {
    for (const auto& [name, kind] : sampling_fields::speculations)
      if (name == given)
        source = kind;
  };
  command
    .add_option_function<std::string>(
      "--speculate", set,
      "Guess next tokens, to compute several at once; the text stays the same. From a --draft model, repetitions "
      "(ngram) or lookahead; auto: what is fastest, or none")
    ->check(one_of(std::move(names)))
    ->type_name("SOURCE")
    ->default_str("auto")
    ->group(sampling_group);
}

sampling_params sampling_options::over(const sampling_params& defaults) const {
  auto params = values;
  sampling_fields::for_each([&](const auto& field) {
    if (field.sources.checkpoint && !given.contains(field.name))
      params.*field.member = defaults.*field.member;
  });
  params.seed = seed ? *seed : random_seed();
  params.stop = stop;
  return params;
}

void add_sampling_options(CLI::App& command, sampling_options& options) {
  using namespace sampling_fields;
  for_each([&](const auto& field) {
    if (field.sources.command_line)
      add_field(command, options, field);
  });
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
  add_speculate_option(command, options.values.speculate);
  command.add_flag("--ignore-eos", options.values.ignore_eos, "Go on where the model would end")->group(sampling_group);
}

} // namespace troupe::cli
