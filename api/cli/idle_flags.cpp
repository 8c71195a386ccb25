#include "api/cli/idle_flags.hpp"

#include "api/cli/command.hpp"
#include "runtime/sampling/sampling_table.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

namespace {

/// The flags between `word` and the colon, all of them alone or with "or" in between; else none, as where a flag is
/// named with a value, for which its command looks itself.
std::vector<std::string> flags_behind(std::string_view word, std::string_view help) {
  if (!help.starts_with(word))
    return {};
  std::vector<std::string> flags;
  auto head = help.substr(word.size(), help.find(':') - word.size());
  while (!head.empty()) {
    constexpr std::string_view either = " or ";
    const auto flag = head.substr(0, head.find(either));
    if (!flag.starts_with("--") || flag.find(' ') != flag.npos)
      return {};
    flags.emplace_back(flag);
    head.remove_prefix(std::min(head.size(), flag.size() + either.size()));
  }
  return flags;
}

bool is_on(const CLI::Option& option) {
  return option.count() > 0 && option.results() != std::vector<std::string>{"false"};
}

/// Whether a checkpoint's own sampling may turn on what the flag does.
bool model_may_set(const std::string& flag) {
  auto name = flag.substr(2);
  std::ranges::replace(name, '-', '_');
  bool may = false;
  sampling_fields::for_each([&](const auto& field) { may = may || (field.sources.checkpoint && field.name == name); });
  return may;
}

} // namespace

void check_idle_flags(const CLI::App& command) {
  const auto on = [&](const std::string& flag) {
    const auto* option = command.get_option_no_throw(flag);
    return option && is_on(*option);
  };
  for (const auto* option : command.get_options()) {
    if (!is_on(*option))
      continue;
    const auto needed = flags_behind("With ", option->get_description());
    if (!needed.empty() && std::ranges::none_of(needed, on) && std::ranges::none_of(needed, model_may_set)) {
      std::string list;
      for (const auto& flag : needed)
        list += (list.empty() ? "" : " or ") + flag;
      throw usage_failure(option->get_name() + " has no effect without " + list);
    }
    for (const auto& other : flags_behind("Without ", option->get_description()))
      if (on(other))
        throw usage_failure(option->get_name() + " has no effect with " + other);
  }
}

} // namespace troupe::cli
