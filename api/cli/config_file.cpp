#include "api/cli/config_file.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/text/number_text.hpp"

#include <CLI/CLI.hpp>
#include <toml++/toml.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace troupe::cli {

namespace {

/// One `key = value`, with the line and column of the value.
struct setting {
  const CLI::App* section;
  std::string key;      // the flag, without dashes
  std::string full_key; // with its section
  std::vector<std::string> values;
  toml::source_position at;
};

[[noreturn]] void refuse(const std::string& file, const toml::source_position& at, const std::string& why) {
  throw failure(errc::bad_request, file + ": line " + std::to_string(at.line) + ": " + why);
}

/// The flag of `command` that a key stands for, or null.
const CLI::Option* find_flag(const CLI::App& command, const std::string& key) {
  const auto* option = command.get_option_no_throw("--" + key);
  return option && option->get_configurable() && option->check_lname(key) ? option : nullptr;
}

/// Whether `command` or one below it has such a flag.
bool any_has_flag(const CLI::App& command, const std::string& key) {
  return find_flag(command, key) ||
    std::ranges::any_of(command.get_subcommands({}), [&](const CLI::App* below) { return any_has_flag(*below, key); });
}

const CLI::App* find_command(const CLI::App& parent, std::string_view name) {
  const auto found = parent.get_subcommands([&](const CLI::App* c) { return c->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

class settings_reader {
public:
  settings_reader(const std::string& file, const CLI::App& root) : file_(file), root_(root) {}

  std::vector<setting> read() {
    const auto content = read_file(file_, files::configuration);
    try {
      read_section(toml::parse(content), root_, {});
    } catch (const toml::parse_error& e) {
      refuse(file_, e.source().begin, std::string(e.description()));
    }
    // toml::table sorts its keys; arguments and errors follow the file.
    std::ranges::sort(settings_, {}, [](const setting& s) { return std::tuple(s.at.line, s.at.column); });
    return std::move(settings_);
  }

  std::vector<config_table> read_models() {
    const auto content = read_file(file_, files::configuration);
    std::vector<config_table> all;
    try {
      const auto root = toml::parse(content);
      for (const auto& list : {root["model"], root["serve"]["model"]})
        if (const auto* tables = list.as_array(); tables && list.is_array_of_tables())
          for (const auto& each : *tables)
            all.push_back(read_model(*each.as_table()));
    } catch (const toml::parse_error& e) {
      refuse(file_, e.source().begin, std::string(e.description()));
    }
    return all;
  }

private:
  config_table read_model(const toml::table& table) const {
    config_table result{.line = table.source().begin.line, .settings = {}};
    for (const auto& [key, node] : table) {
      setting one{&root_, std::string(key.str()), "model." + std::string(key.str()), {}, key.source().begin};
      read_values(one, node);
      result.settings.push_back({one.key, std::move(one.values), one.at.line});
    }
    std::ranges::sort(result.settings, {}, &config_table::setting::line);
    return result;
  }

  void read_section(const toml::table& table, const CLI::App& section, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const auto full_key = prefix + std::string(key.str());
      if (const auto* below = node.as_table()) {
        const auto* command = find_command(section, key.str());
        if (!command)
          refuse(file_, key.source().begin, "unknown section [" + full_key + "]");
        read_section(*below, *command, full_key + ".");
      } else if (key.str() == "model" && node.is_array_of_tables()) { // model_tables reads them
        if (&section != &root_ && section.get_name() != "serve")
          refuse(file_, key.source().begin, "[[" + full_key + "]] has no meaning; there is [[model]]");
      } else {
        read_setting(setting{&section, std::string(key.str()), full_key, {}, key.source().begin}, node);
      }
    }
  }

  void read_setting(setting one, const toml::node& node) {
    const bool known = one.section == &root_ ? any_has_flag(root_, one.key)
                                             : find_flag(*one.section, one.key) != nullptr;
    if (!known)
      refuse(file_, one.at, "unknown key `" + one.full_key + "`");
    read_values(one, node);
    settings_.push_back(std::move(one));
  }

  void read_values(setting& one, const toml::node& node) const {
    if (const auto* list = node.as_array())
      for (const auto& item : *list)
        one.values.push_back(value_of(one, item));
    else
      one.values.push_back(value_of(one, node));
    if (one.values.empty() || std::ranges::any_of(one.values, &std::string::empty))
      refuse(file_, one.at, "`" + one.full_key + "` has no value");
  }

  /// The value as it would be written on the command line.
  std::string value_of(const setting& one, const toml::node& node) const {
    if (const auto* text = node.as_string())
      return text->get();
    if (const auto* integer = node.as_integer())
      return std::to_string(integer->get());
    if (const auto* number = node.as_floating_point())
      return shortest_digits(number->get());
    if (const auto* flag = node.as_boolean())
      return flag->get() ? "true" : "false";
    refuse(file_, one.at, "`" + one.full_key + "` must be text, a number, true or false, or a list of those");
  }

  const std::string& file_;
  const CLI::App& root_;
  std::vector<setting> settings_;
};

} // namespace

std::vector<config_argument> config_arguments(const std::string& file, const CLI::App& root, const CLI::App& chosen) {
  const auto settings = settings_reader(file, root).read();
  std::vector<config_argument> arguments;
  std::set<const CLI::Option*> given;
  // A command's own section wins over the top of the file.
  for (const auto* section : {&chosen, &root})
    for (const auto& one : settings) {
      const auto* flag = one.section == section ? find_flag(chosen, one.key) : nullptr;
      if (!flag || flag->count() > 0 || !given.insert(flag).second)
        continue;
      for (const auto& value : one.values)
        arguments.push_back({"--" + one.key + "=" + value, one.at.line});
    }
  return arguments;
}

std::vector<config_table> model_tables(const std::string& file) {
  const CLI::App none;
  return settings_reader(file, none).read_models();
}

bool is_flag_of(const CLI::App& command, const std::string& key) { return find_flag(command, key) != nullptr; }

std::string refused_argument(const std::string& file, const std::vector<config_argument>& arguments,
                             std::string_view said) {
  std::string where = file + ": ";
  for (const auto& [text, line] : arguments) { // the last one with this flag and value, else the first with the flag
    const auto equals = text.find('=');
    const auto flag = text.substr(0, equals), value = "`" + text.substr(equals + 1) + "`";
    const auto at = said.find(flag);
    const bool named = at != said.npos && said.substr(at + flag.size()).find_first_of(": ") == 0;
    if (named && (where.size() == file.size() + 2 || said.find(value) != said.npos))
      where = file + ": line " + std::to_string(line) + ": ";
  }
  return where + std::string(said);
}

} // namespace troupe::cli
