#include "api/cli/help_formatter.hpp"

#include "api/cli/terminal/word_wrap.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <unistd.h>

namespace troupe::cli {

namespace {

constexpr std::size_t name_columns = 30, narrowest = 50, widest = 100, many_options = 24;

/// The flags that --help shows of commands that have many.
constexpr auto everyday = std::to_array<std::string_view>(
  {// model
   "model", "chat-template", "quantize", "device", "threads", "model-name", "lora",
   // what is asked, and how it is answered
   "system", "raw", "n", "json-schema", "temperature", "top-p", "max-tokens", "seed", "stop",
   // limits and the server
   "max-context", "kv-cache", "max-sequences", "host", "port", "api-key", "log-level",
   // benches and scores
   "top", "prompt", "generate", "batch", "text", "positive", "negative", "out", "to", "source", "json",
   // output
   "verbose", "config", "help", "help-all"});

/// Flags that are everyday ones of servers only: run and chat answer one request at a time.
constexpr auto of_servers = std::to_array<std::string_view>({"model-name", "lora", "kv-cache", "max-sequences"});

bool is_everyday(const CLI::App& command, const CLI::Option& option) {
  const auto& names = option.get_lnames();
  const auto is_in = [&](const auto& list) {
    return std::ranges::any_of(names, [&](const std::string& n) { return std::ranges::find(list, n) != list.end(); });
  };
  return is_in(everyday) && (!is_in(of_servers) || command.get_option_no_throw("--port"));
}

std::string indented(const std::string& text) { return "  " + text; }

} // namespace

std::size_t help_columns() {
  const auto columns = columns_of(STDOUT_FILENO);
  return columns == 0 ? widest : std::clamp(columns, narrowest, widest);
}

help_formatter::help_formatter(std::size_t columns) : columns_(columns) {
  use_utf8_locale();
  label("SUBCOMMAND", "COMMAND");
}

std::string help_formatter::list(const std::string& title, const std::vector<item>& items) const {
  if (items.empty())
    return {};
  auto result = "\n" + title + ":\n";
  for (const auto& [name, text] : items) {
    auto line = indented(name);
    if (line.size() + 2 > name_columns) // the text begins on the next line
      line += '\n' + std::string(name_columns, ' ');
    else
      line.resize(name_columns, ' ');
    result += line + wrapped(text, columns_, name_columns) + '\n';
  }
  return result;
}

std::string help_formatter::list_options(const CLI::App& command, bool all) const {
  std::string result;
  for (const auto& group : command.get_groups()) {
    std::vector<item> items;
    for (const auto* option : command.get_options())
      if (!group.empty() && option->get_group() == group && option->nonpositional() &&
          (all || is_everyday(command, *option)))
        items.push_back({make_option_name(option, false) + make_option_opts(option), option->get_description()});
    result += list(group, items);
  }
  return result;
}

std::string help_formatter::list_commands(const CLI::App& command) const {
  std::vector<item> items;
  for (const auto* below : command.get_subcommands({}))
    items.push_back({below->get_name(), below->get_description()});
  return list("Commands", items);
}

std::string help_formatter::notes(const std::string& text) const {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(at, end - at);
    result += (line.starts_with("  ") ? line : wrapped(line, columns_)) + '\n';
    at = end + 1;
  }
  return result;
}

std::string help_formatter::make_help(const CLI::App* command, std::string name, CLI::AppFormatMode mode) const {
  const auto options = command->get_options([](const CLI::Option* o) { return o->nonpositional(); });
  const bool all = mode == CLI::AppFormatMode::All || options.size() <= many_options;
  auto result = wrapped(command->get_description(), columns_) + "\n\n" + make_usage(command, name);
  std::vector<item> arguments;
  for (const auto* option : command->get_options([](const CLI::Option* o) { return o->get_positional(); }))
    arguments.push_back({option->get_name(true), option->get_description()});
  result += list("Arguments", arguments) + list_commands(*command) + list_options(*command, all);
  if (!all)
    result += "\n" +
      wrapped("These are the everyday flags of " + std::to_string(options.size()) + "; `" + name +
                " --help-all` shows all of them.",
              columns_) +
      "\n";
  return result + "\n" + notes(command->get_footer());
}

} // namespace troupe::cli
