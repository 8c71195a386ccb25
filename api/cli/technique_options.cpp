#include "api/cli/technique_options.hpp"

#include "api/cli/common_options.hpp"
#include "api/cli/values.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace troupe::cli {

namespace {

/// Calls `parse` with each of the texts of a flag.
template <class Parse>
CLI::callback_t parsed_by(const std::string& flag, Parse parse) {
  return [flag, parse](const CLI::results_t& texts) {
    for (const auto& text : texts)
      try {
        parse(text);
      } catch (const failure& f) {
        throw CLI::ValidationError(flag, f.what());
      }
    return true;
  };
}

/// The words between bars.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> result(1);
  for (const char c : text)
    if (c == '|')
      result.emplace_back();
    else
      result.back() += c;
  return result;
}

void add_option(CLI::App& command, flag_values& to, const technique_option& option, const char* group) {
  const std::string name(option.name);
  auto flag = "--" + name;
  std::ranges::replace(flag, '_', '-');
  if (option.what == technique_option::kind::on) {
    command
      .add_flag_callback(
        flag, [&to, name] { to[name] = {""}; }, option.help)
      ->group(group);
    return;
  }
  const auto take = [&to, name, check = option.check](const std::string& text) {
    if (check)
      check(text);
    to[name].push_back(text);
  };
  auto parse = parsed_by(flag, take);
  const bool setting = option.in(technique_option::setting);
  auto* added = command.add_option(
    flag,
    [&to, name, parse](const CLI::results_t& texts) {
      to.erase(name); // CLI11 parses twice where there is a configuration file
      return parse(texts);
    },
    std::string(option.help) + (setting ? " [" + std::string(option.fallback) + ']' : ""));
  if (option.what == technique_option::kind::texts)
    added->expected(1, CLI::detail::expected_max_vector_size)->take_all()->allow_extra_args(false);
  const auto whole = static_cast<std::int64_t>(option.most);
  switch (option.what) {
    case technique_option::kind::integer:
      added->check(integer_between(static_cast<std::int64_t>(option.least), whole))->type_name("INT");
      break;
    case technique_option::kind::number:
      added->check(number_between(option.least, option.most))->type_name("NUMBER");
      break;
    case technique_option::kind::choice: added->check(one_of(words_of(option.type)))->type_name("HOW"); break;
    default: added->type_name(option.type);
  }
  if (*option.fallback && !setting)
    added->default_str(option.fallback);
  added->group(group);
}

} // namespace

void add_technique_options(CLI::App& command, flag_values& to, technique_option::place place, const char* group) {
  for (const bool leading : {true, false})
    for (const auto* each : repertoire())
      for (const auto& option : each->options)
        if (option.in(place) && option.in(technique_option::leading) == leading)
          add_option(command, to, option, group);
}

technique_uses uses_of(const flag_values& flags) {
  technique_uses result;
  for (const auto* each : repertoire())
    if (each->of_flags)
      result.set(each->of_flags(flags));
  return result;
}

} // namespace troupe::cli
