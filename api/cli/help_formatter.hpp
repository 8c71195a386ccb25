// The text of --help: the everyday flags of a command, its notes and its examples, in lines that fit the terminal; with
// --help-all, every flag.
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::cli {

class help_formatter : public CLI::Formatter {
public:
  /// `columns`: of a line.
  explicit help_formatter(std::size_t columns);

  std::string make_help(const CLI::App* command, std::string name, CLI::AppFormatMode mode) const override;

private:
  struct item {
    std::string name, text;
  };
  /// Items in two columns under a title.
  std::string list(const std::string& title, const std::vector<item>& items) const;
  std::string list_options(const CLI::App& command, bool all) const;
  std::string list_commands(const CLI::App& command) const;
  /// Notes with examples, which begin with two spaces and are not wrapped.
  std::string notes(const std::string& text) const;

  std::size_t columns_;
};

/// The columns for help: the terminal's, within what can be read well, or 100 where there is no terminal.
std::size_t help_columns();

} // namespace troupe::cli
