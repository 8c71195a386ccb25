#include "api/cli/config_file.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/file_reading.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <set>
#include <sstream>

namespace troupe::cli {

namespace {

/// CLI11's reader takes every # for a comment, also one within quotes: comments go before it sees the text.
std::string without_comments(const std::string& content) {
  std::istringstream file(content);
  std::string text, line;
  while (std::getline(file, line)) {
    char quote = 0;
    const auto end = std::ranges::find_if(line, [&](char c) {
      if (quote == 0 && c == '#')
        return true;
      if (c == '"' || c == '\'')
        quote = quote == 0 ? c : quote == c ? 0 : quote;
      return false;
    });
    text.append(line.begin(), end) += '\n';
  }
  return text;
}

std::vector<CLI::ConfigItem> read_items(const std::string& file) {
  std::istringstream text(without_comments(read_file(file, files::configuration)));
  CLI::ConfigTOML reader;
  reader.comment('\0');
  return reader.from_config(text);
}

/// The flag of `command` that a key stands for, or null.
const CLI::Option* find_flag(const CLI::App& command, const std::string& key) {
  const auto* option = command.get_option_no_throw("--" + key);
  return option && option->get_configurable() && option->check_lname(key) ? option : nullptr;
}

/// Whether `command` or one below it has such a flag.
bool knows(const CLI::App& command, const std::string& key) {
  return find_flag(command, key) ||
    std::ranges::any_of(command.get_subcommands({}), [&](const CLI::App* below) { return knows(*below, key); });
}

const CLI::App* find_section(const CLI::App& root, const std::vector<std::string>& names) {
  const auto* at = &root;
  for (const auto& name : names) {
    const auto below = at->get_subcommands([&](const CLI::App* c) { return c->get_name() == name; });
    if (below.empty())
      return nullptr;
    at = below.front();
  }
  return at;
}

} // namespace

std::vector<std::string> config_arguments(const std::string& file, const CLI::App& root, const CLI::App& chosen) {
  std::vector<std::string> arguments;
  std::set<const CLI::Option*> given;
  const auto refuse = [&](const std::string& why) { throw failure(errc::bad_request, file + ": " + why); };
  const auto items = read_items(file);
  for (const auto& item : items) {
    const auto* section = find_section(root, item.parents);
    if (!section)
      refuse("unknown section [" + CLI::detail::join(item.parents, ".") + "]");
    if (item.name == "++" || item.name == "--")
      continue;
    if (item.parents.empty() ? !knows(root, item.name) : !find_flag(*section, item.name))
      refuse("unknown key `" + item.fullname() + "`");
    if (std::ranges::any_of(item.inputs, &std::string::empty) || item.inputs.empty())
      refuse("`" + item.fullname() + "` has no value");
  }
  // The section's values first, as they win over those at the top.
  for (const bool of_section : {true, false})
    for (const auto& item : items) {
      if (item.parents.empty() == of_section || find_section(root, item.parents) != (of_section ? &chosen : &root))
        continue;
      const auto* flag = find_flag(chosen, item.name);
      if (item.name == "++" || item.name == "--" || !flag || flag->count() > 0 || !given.insert(flag).second)
        continue;
      for (const auto& value : item.inputs)
        arguments.push_back("--" + item.name + "=" + value);
    }
  return arguments;
}

} // namespace troupe::cli
