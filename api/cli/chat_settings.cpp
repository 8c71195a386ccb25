#include "api/cli/chat_settings.hpp"

#include "api/cli/suggestions.hpp"
#include "runtime/model/default_sampling.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/text/nearest_name.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::cli {

namespace {

constexpr std::string_view blanks = " \t", back = "default";

std::string_view trimmed(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(blanks), text.size());
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

/// The first word, and what follows it.
std::pair<std::string_view, std::string_view> split(std::string_view words) {
  words = trimmed(words);
  const auto end = std::min(words.find_first_of(blanks), words.size());
  return {words.substr(0, end), trimmed(words.substr(end))};
}

std::string_view without_quotes(std::string_view value) {
  const bool quoted = value.size() > 1 && value.front() == value.back() && (value[0] == '"' || value[0] == '\'');
  return quoted ? value.substr(1, value.size() - 2) : value;
}

/// The flag that a name stands for, here or in another program, without dashes.
std::string flag_named(const CLI::App& flags, std::string_view typed) {
  auto name = std::string(typed.substr(std::min(typed.find_first_not_of('-'), typed.size())));
  std::ranges::replace(name, '_', '-');
  const auto* option = flags.get_option_no_throw("--" + name);
  const std::string elsewhere(name_here(name));
  if (!option && !elsewhere.empty())
    option = flags.get_option_no_throw("--" + elsewhere);
  if (option)
    return option->get_lnames().front();
  std::vector<std::string> known{"system"};
  for (const auto* each : flags.get_options())
    known.insert(known.end(), each->get_lnames().begin(), each->get_lnames().end());
  const auto meant = nearest(name, known);
  throw failure(errc::bad_request,
                "there is no `" + name + "` to set within a chat" +
                  (!meant.empty()         ? "; did you mean `" + meant + "`?"
                     : !elsewhere.empty() ? "; `troupe chat --" + elsewhere + "` begins another one with it"
                                          : "; `troupe chat --help-all` lists the sampling flags"));
}

} // namespace

chat_settings::chat_settings(const sampling_options& given, std::string system)
  : given_(given), given_system_(std::move(system)), now_(given), system_(given_system_) {}

void chat_settings::set(std::string_view words) {
  auto [name, value] = split(words);
  if (name == "parameter")
    std::tie(name, value) = split(value);
  value = without_quotes(value);
  if (value.empty())
    throw failure(errc::bad_request,
                  "/set takes a name and a value, such as `/set temperature 0.5`; the value `default` takes it back");
  if (name == "system") {
    system_ = value == back ? given_system_ : std::string(value);
    return;
  }
  auto made = given_;
  auto changes = changes_;
  CLI::App flags;
  add_sampling_options(flags, made);
  const auto flag = flag_named(flags, name);
  if (value == back)
    changes.erase(flag);
  else
    changes[flag] = value;
  std::vector<std::string> arguments;
  for (const auto& [each, its] : changes)
    arguments.push_back("--" + each + "=" + its);
  try {
    flags.parse(arguments);
  } catch (const CLI::ParseError& e) {
    throw failure(errc::bad_request, e.what());
  }
  made.check();
  made.over({});
  now_ = std::move(made);
  changes_ = std::move(changes);
}

std::string chat_settings::told(const model_info& model) const {
  const auto used = now_.over(model.defaults);
  std::string lines = "sampling: " + now_.told(used, model.defaults) + "\nmax-tokens: ";
  lines += used.max_tokens == sampling_fields::most_int
    ? "the rest of the context, which has " + std::to_string(model.max_context)
    : std::to_string(used.max_tokens);
  for (const auto& [flag, value] : changes_) {
    auto parameter = flag;
    std::ranges::replace(parameter, '-', '_');
    if (flag != "max-tokens" && !decides_draws(parameter))
      lines += "\n" + flag + ": " + value;
  }
  if (!system_.empty())
    lines += "\nsystem: " + system_;
  return lines + "\n";
}

} // namespace troupe::cli
